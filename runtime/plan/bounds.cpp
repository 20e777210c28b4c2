#include "runtime/plan/bounds.hpp"

#include <algorithm>

#include "parallel/pipeline/schedule.hpp"
#include "runtime/plan/unit_seconds.hpp"
#include "runtime/program/persistent_bytes.hpp"

namespace sluice {
namespace {

double over(double work, double rate) { return rate > 0 ? work / rate : 0; }

// Of one micro-batch, of the chunk of the stage that leaves least; all of a stage in one piece.
std::int64_t kept_of_chunk(const StepShape& shape) {
  const std::vector<int> whole{static_cast<int>(shape.units.size())};
  const bool cut = !shape.pipeline.chunk_ends.empty();
  const std::vector<int>& ends = cut ? shape.pipeline.chunk_ends : whole;
  std::int64_t least = -1;
  std::size_t u = 0;
  for (const int end : ends) {
    std::int64_t kept = 0;
    for (; u < static_cast<std::size_t>(end); ++u) {
      const bool head = shape.ends_model() && u + 1 == shape.units.size();
      if (head) continue;
      const UnitMemory& memory = shape.units[u].memory;
      kept += memory.output + (shape.recompute ? 0 : memory.kept);
      kept -= leaving_bytes(shape, static_cast<int>(u));
    }
    kept = std::max<std::int64_t>(0, kept);  // what leaves may be another stage's output
    least = least < 0 ? kept : std::min(least, kept);
  }
  return least;
}

int in_flight(const StepShape& shape) {
  const PipelineShape& p = shape.pipeline;
  if (p.stages == 1) return shape.layer_major ? shape.micro_batches : 1;
  return in_flight_limit({p.schedule, p.stages, p.virtual_stages(), shape.micro_batches}, p.stage);
}

double compute_of_micro_batch(const StepShape& shape, const Rates& rates) {
  double sent = 0;
  for (const UnitShape& unit : shape.units) {
    sent += static_cast<double>(unit.tensor_forward_bytes + unit.tensor_backward_bytes);
  }
  const bool measured = !rates.units.empty();
  return compute_floor(shape, rates) + (measured ? 0 : over(sent, rates.tensor_bps));
}

// A stage by itself.
double stage_floor(const StepShape& shape, const Rates& rates) {
  const auto micro_batches = static_cast<double>(shape.micro_batches);
  double away = 0;
  double sent = 0;
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    const GroupShape& group = shape.groups[static_cast<std::size_t>(g)];
    if (shape.placement.optimizer != Tier::kDevice) {
      away += static_cast<double>(owned_elems(shape, g) - device_elems(shape, g));
    }
    const auto wire = static_cast<double>((shape.dp - 1) * group.shard_elems);
    const bool each = shape.reduce_every == ReduceEvery::kMicroBatch;
    sent += 4 * wire * (each ? micro_batches : 1);
    // A pipeline's stage may keep a group for micro-batches that follow each other.
    const bool once = group.resident || shape.layer_major || shape.pipeline.stages > 1;
    sent += wire * static_cast<double>(size_of(shape.dtype)) * (once ? 1 : micro_batches);
  }
  const double compute = compute_of_micro_batch(shape, rates) * micro_batches;
  const double host = over(away, rates.host_adam);
  const double comm = over(sent, rates.comm_bps);
  const bool on_disk = shape.placement.optimizer == Tier::kNvme;
  const double moved = on_disk ? away * static_cast<double>(away_state_bytes(shape)) : 0;
  const double reads = over(moved, rates.disk_read_bps);
  const double writes = over(moved, rates.disk_write_bps);
  const double disk = std::max({reads, writes, (reads + writes) / rates.disk_duplex});
  return rates.shared_cores ? std::max(compute + host + comm, disk)
                            : std::max({compute, host, comm, disk});
}

}  // namespace

TierBytes memory_floor(const StepShape& shape) {
  TierBytes floor{};
  for (const Persistent& p : list_persistent(shape)) {
    floor[static_cast<std::size_t>(p.tier)] += p.bytes;
  }
  floor[0] += kept_of_chunk(shape) * in_flight(shape);
  return floor;
}

// A stage begins when the first chunks before it have run once, and these end their backwards after
// it has: of a split backward at least the half that the stage before waits for.
double time_floor(std::span<const StepPlan> stages, std::span<const Rates> rates) {
  double longest = 0;
  double before = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const StepShape& shape = stages[s].shape;
    longest = std::max(longest, stage_floor(shape, rates[s]));
    const double each = compute_of_micro_batch(shape, rates[s]);
    longest = std::max(longest, before + each * shape.micro_batches);
    const bool split = shape.pipeline.schedule == PipelineSchedule::kZeroBubble;
    before += each / shape.pipeline.virtual_stages() * (split ? 2.0 / 3 : 1);
  }
  return longest;
}

}  // namespace sluice
