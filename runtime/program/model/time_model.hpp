// Predicts the time of a program on a machine with given rates, by list-scheduling its lanes. Pure.
//
// Lanes are those of the executor (program.hpp). Compute issues operations in order and waits for
// their `waits`. An operation of another lane starts when it is issued, its lane has started the
// operation before, and its own `waits` have completed. The wire serves one operation at a time,
// and so does the disk in each direction; both directions share the disk's rate. Every instant is a
// maximum of sums, so a faster rate never makes a step longer. A step ends when all operations have
// completed.
// - A speculating step is priced as one that needs no clipping. A clipped step takes the time of a
//   step without speculation.
// - Updates off the device stand at the start of the program: a program is a step in steady state.
// - Exchanges inside an operation add to its time; computation beside an exchange hides none of it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

// A unit's computation for one micro-batch, measured; exchanges with tensor-parallel ranks come on
// top. Recomputation costs a forward more.
struct UnitSeconds {
  double forward = 0;
  double backward = 0;  // of the loss head in training: all that it does
  bool known = false;   // false: priced by FLOP and bytes
};

// Of one rank. Per second; a rate of 0 takes no time.
struct Rates {
  double flops = 0;              // of a model's matrix products in the run's dtype
  double device_memory_bps = 0;  // read or written
  double device_adam = 0;        // parameters updated
  double host_memory_bps = 0;
  double host_adam = 0;
  double comm_latency_s = 0;  // of a collective, for each doubling of its ranks; an all-reduce: two
  double comm_bps = 0;        // sent
  double tensor_bps = 0;      // sent between tensor-parallel ranks; 0: as comm_bps
  double pipe_bps = 0;        // and between pipeline stages, over each of their wires
  double h2d_bps = 0;
  double d2h_bps = 0;
  double disk_read_bps = 0;  // alone
  double disk_write_bps = 0;
  double disk_duplex = 1;            // both directions at once against one of them: 1 (shared) to 2
  double compute_factor = 1;         // measured over predicted, of the compute lane: a calibration
  std::vector<UnitSeconds> units{};  // by unit; empty: none is known
  // All lanes but the disk's use the cores that compute: a step is no shorter than their sum.
  bool shared_cores = false;
};

// Seconds each operation takes by itself. REQUIRES: the program was written from this shape.
[[nodiscard]] std::vector<double> op_seconds(const Program& program, const StepShape& shape,
                                             const Rates& rates);

struct OpInterval {  // seconds since the step began
  double begin = 0;
  double end = 0;
};

using LaneSeconds = std::array<double, static_cast<std::size_t>(kLaneCount)>;

// An exchange inside an operation of a unit (its `index`-th), placed for pictures: the unit's
// computation is taken to come in equal parts before its exchanges.
struct ExchangeInterval {
  OpId op = -1;
  int index = 0;
  double begin = 0;
  double end = 0;
};

struct TimeReport {
  double step_s = 0;
  LaneSeconds busy{};     // work of each lane; disk: of its busiest direction, or of both together
  LaneSeconds waiting{};  // of compute, by the lane that made it wait; the end of the step included
  Lane limiting = Lane::kCompute;    // the busiest
  std::vector<OpInterval> timeline;  // by operation
  std::vector<ExchangeInterval> exchanges{};
};

// `seconds`: by operation, of this program. Other pipeline stages come in time
// (pipeline_time.hpp has all of them together).
[[nodiscard]] TimeReport schedule(const Program& program, std::span<const double> seconds,
                                  double disk_duplex = 1, bool shared_cores = false);
// Of units, in the order of `timeline`, which is of this program at these rates.
[[nodiscard]] std::vector<ExchangeInterval> place_exchanges(const Program& program,
                                                            const StepShape& shape,
                                                            const Rates& rates,
                                                            std::span<const OpInterval> timeline);
// With its exchanges.
[[nodiscard]] TimeReport predict_time(const Program& program, const StepShape& shape,
                                      const Rates& rates);

// Bytes a step sends, reads from and writes to the disk; of one rank.
struct Traffic {
  std::int64_t wire = 0;      // to data-parallel ranks
  std::int64_t tensor = 0;    // inside units, to tensor-parallel ranks
  std::int64_t replicas = 0;  // of gradients that several tensor-parallel ranks have
  std::int64_t ends = 0;      // of gradients that the first and the last pipeline stage have
  std::int64_t world = 0;     // of the norm, to all ranks
  std::int64_t pipe = 0;      // to other pipeline stages
  std::int64_t to_host = 0;
  std::int64_t to_device = 0;
  std::int64_t disk_read = 0;
  std::int64_t disk_written = 0;

  [[nodiscard]] std::int64_t sent() const {
    return wire + tensor + replicas + ends + world + pipe;
  }
};
[[nodiscard]] Traffic traffic_of(const Program& program);
[[nodiscard]] bool writes_disk(OpKind kind);

}  // namespace sluice
