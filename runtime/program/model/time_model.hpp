// Predicts the time of a program on a machine with given rates, by list-scheduling its lanes. Pure.
//
// The lanes are the executor's (program.hpp). Compute issues operations in order and waits for
// their `waits`. An operation of another lane starts after its issue, after the start of the lane's
// previous operation and after its own `waits`. The wire serves one operation at a time. The disk
// serves one operation at a time in each direction; both directions share the disk's rate. Every
// time is a maximum of sums, so a faster rate never makes a step longer. A step ends when all
// operations have completed.
// - A speculating step is priced as an unclipped step. A clipped step takes the time of a step
//   without speculation. Speculative updates on the host that would begin after the last backward
//   are left to the deferred updates, as in a run.
// - Deferred updates run at the start of the program: a program is a step in steady state.
// - Exchanges inside an operation add to its time. Computation never hides an exchange.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

// A unit's measured computation for one micro-batch, without exchanges with tensor-parallel ranks.
// Recomputation costs one more forward.
struct UnitSeconds {
  double forward = 0;
  double backward = 0;  // the loss head's value covers all its work in training
  bool known = false;   // false: priced by FLOP and bytes
};

// Rates of one rank, per second. Work at a rate of 0 takes no time.
struct Rates {
  double flops = 0;              // matrix products of a model in the run's dtype
  double device_memory_bps = 0;  // read or written
  double device_adam = 0;        // parameters updated
  double host_memory_bps = 0;
  double host_adam = 0;
  double comm_latency_s = 0;  // per doubling of a collective's ranks; twice for an all-reduce
  double comm_bps = 0;        // sent
  double tensor_bps = 0;      // sent between tensor-parallel ranks; 0: as comm_bps
  double pipe_bps = 0;        // sent between pipeline stages, on each wire
  double h2d_bps = 0;
  double d2h_bps = 0;
  double disk_read_bps = 0;  // without concurrent writes
  double disk_write_bps = 0;
  double disk_duplex = 1;            // rate of both directions over one: 1 (shared) to 2
  double compute_factor = 1;         // calibration: measured over predicted time of compute
  std::vector<UnitSeconds> units{};  // by unit; empty: none is known
  // All lanes except the disk use the computing cores. A step is no shorter than the lanes' sum.
  bool shared_cores = false;
};

// Seconds of each operation by itself; 0 for a speculative update that begins too late. REQUIRES:
// the program was written from this shape.
[[nodiscard]] std::vector<double> op_seconds(const Program& program, const StepShape& shape,
                                             const Rates& rates);

struct OpInterval {  // seconds since the step began
  double begin = 0;
  double end = 0;
};

using LaneSeconds = std::array<double, static_cast<std::size_t>(kLaneCount)>;

// The `index`-th exchange inside a unit's operation, placed for pictures. The placement assumes
// that the unit's computation is split into equal parts before its exchanges.
struct ExchangeInterval {
  OpId op = -1;
  int index = 0;
  double begin = 0;
  double end = 0;
};

struct TimeReport {
  double step_s = 0;
  LaneSeconds busy{};     // work of each lane; disk: its busiest direction, or both together
  LaneSeconds waiting{};  // compute's waits, by the lane it waits for; includes the step's end
  Lane limiting = Lane::kCompute;    // the busiest
  std::vector<OpInterval> timeline;  // by operation
  std::vector<ExchangeInterval> exchanges{};
};

// `seconds`: by operation of this program. Assumes that other pipeline stages are always on time
// (pipeline_time.hpp schedules all stages together).
[[nodiscard]] TimeReport schedule(const Program& program, std::span<const double> seconds,
                                  double disk_duplex = 1, bool shared_cores = false);
// The exchanges inside units, in the order of `timeline`. REQUIRES: `timeline` is of this program
// at these rates.
[[nodiscard]] std::vector<ExchangeInterval> place_exchanges(const Program& program,
                                                            const StepShape& shape,
                                                            const Rates& rates,
                                                            std::span<const OpInterval> timeline);
// The report includes the exchanges.
[[nodiscard]] TimeReport predict_time(const Program& program, const StepShape& shape,
                                      const Rates& rates);

// Bytes that one rank sends and moves between tiers in a step.
struct Traffic {
  std::int64_t wire = 0;      // to data-parallel ranks
  std::int64_t tensor = 0;    // inside units, to tensor-parallel ranks
  std::int64_t replicas = 0;  // gradients of parameters that all tensor-parallel ranks hold
  std::int64_t ends = 0;      // gradients of parameters that the first and last stage hold
  std::int64_t world = 0;     // for the norm, to all ranks
  std::int64_t pipe = 0;      // to other pipeline stages
  std::int64_t to_host = 0;
  std::int64_t to_device = 0;
  std::int64_t disk_read = 0;
  std::int64_t disk_written = 0;

  [[nodiscard]] std::int64_t sent() const { return wire + tensor + replicas + ends + world + pipe; }
};
[[nodiscard]] Traffic traffic_of(const Program& program);
[[nodiscard]] bool writes_disk(OpKind kind);

}  // namespace sluice
