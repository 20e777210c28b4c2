#include "runtime/plan/search/bounds.hpp"

#include <algorithm>

#include "base/index.hpp"
#include "runtime/plan/unit_seconds.hpp"
#include "runtime/program/write/step_states.hpp"
#include "runtime/program/write/use_order.hpp"

namespace sluice {
namespace {

double over(double work, double rate) { return rate > 0 ? work / rate : 0; }

// Bytes that one micro-batch keeps on the device in the stage's smallest chunk. Without virtual
// stages, the whole stage is the chunk.
std::int64_t kept_of_chunk(const StepShape& shape) {
  std::int64_t least = -1;
  for (int chunk = 0; chunk < shape.pipeline.virtual_stages(); ++chunk) {
    std::int64_t kept = 0;
    for (int u = chunk_begin(shape, chunk); u < chunk_end(shape, chunk); ++u) {
      if (is_loss_head(shape, u)) continue;
      const UnitMemory& memory = nth(shape.units, u).memory;
      kept += memory.output + (shape.recompute ? 0 : memory.kept);
      kept -= leaving_bytes(shape, u);
    }
    kept = std::max<std::int64_t>(0, kept);  // leaving bytes may be another stage's output
    least = least < 0 ? kept : std::min(least, kept);
  }
  return least;
}

double disk_floor(double read_bytes, double written_bytes, const Rates& rates) {
  const double reads = over(read_bytes, rates.disk_read_bps);
  const double writes = over(written_bytes, rates.disk_write_bps);
  return std::max({reads, writes, over(reads + writes, rates.disk_duplex)});
}

// Bytes that the forward of one micro-batch sends off-device.
std::int64_t left_by_forward(const StepShape& shape) {
  std::int64_t bytes = 0;
  for (int u = 0; u < static_cast<int>(shape.units.size()); ++u) bytes += leaving_bytes(shape, u);
  return bytes;
}

double compute_of_micro_batch(const StepShape& shape, const Rates& rates) {
  double sent = 0;
  for (const UnitShape& unit : shape.units) {
    const UnitExchanges& exchanges = unit.exchanges;
    sent += static_cast<double>(sent_bytes(exchanges.forward) +
                                sent_bytes(shape.recompute ? exchanges.again : exchanges.backward));
  }
  return compute_floor(shape, rates) + over(sent, rates.tensor_bps);
}

// Work of a rank in a step: moves and updates.
struct Work {
  double away_elems = 0;                   // elements that the host updates
  double wire_bytes = 0;                   // sent to other data-parallel ranks
  double states_read = 0;                  // bytes read from NVMe; as many are written
  double disk_reads = 0, disk_writes = 0;  // bytes with gradients and activations
};

Work work_of(const StepShape& shape) {
  const auto micro_batches = static_cast<double>(shape.micro_batches);
  Work work;
  double shards = 0;
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    const GroupShape& group = nth(shape.groups, g);
    shards += static_cast<double>(group.shard_elems);
    if (shape.placement.optimizer != Tier::kDevice) {
      const std::int64_t elems = off_device_elems(shape, g);
      work.away_elems += static_cast<double>(elems);
      if (optimizer_tier(shape, g) == Tier::kNvme) {
        work.states_read += static_cast<double>(elems * away_state_bytes(shape, g));
      }
    }
    const auto wire = static_cast<double>((shape.dp - 1) * group.shard_elems);
    const bool each = shape.reduce_every == ReduceEvery::kMicroBatch;
    if (!is_frozen(shape, g)) {
      const auto size = static_cast<double>(size_of(sent_dtype(shape)));
      work.wire_bytes += size * wire * (each ? micro_batches : 1);
    }
    // A pipeline stage may keep a group for consecutive micro-batches.
    const bool once = group.resident || shape.layer_major || shape.pipeline.stages > 1;
    work.wire_bytes +=
        wire * static_cast<double>(size_of(shape.dtype)) * (once ? 1 : micro_batches);
  }
  work.disk_reads = work.disk_writes = work.states_read;
  if (shape.placement.activations == Tier::kNvme) {
    const double left = static_cast<double>(left_by_forward(shape)) * micro_batches;
    work.disk_reads += left;
    work.disk_writes += left;
  }
  if (shape.placement.gradients == Tier::kNvme) {
    const bool once = shape.reduce_every == ReduceEvery::kStep;
    const auto size = static_cast<double>(size_of(shape.placement.gradients_dtype));
    work.disk_writes += size * shards * (once ? 1 : micro_batches);
  }
  return work;
}

// Seconds of updates that no forward hides. Updates begin when the norm is known, after all
// backwards, and end before the first run of the loss head. Only the forwards before the loss head
// run beside the updates. Chunks that fit in the ring may be read earlier and written later.
double updates_beyond_forward(const StepShape& shape, const Rates& rates, const Work& work) {
  const Placement& placement = shape.placement;
  if (placement.optimizer == Tier::kDevice || placement.speculate || shape.pipeline.stages > 1) {
    return 0;
  }
  const auto ring = static_cast<double>(placement.chunk_slots * placement.chunk_elems *
                                        state_bytes_of_element(shape));
  const double crossing = std::max(0.0, work.states_read - ring);
  double updates = disk_floor(crossing, crossing, rates);
  if (!rates.shared_cores)
    updates = std::max(updates, over(adamw_updates(shape, work.away_elems), rates.host_adam));
  double sent = 0;
  for (const UnitShape& unit : shape.units) {
    sent += static_cast<double>(sent_bytes(unit.exchanges.forward));
  }
  const double forward = forward_floor(shape, rates) + over(sent, rates.tensor_bps);
  return std::max(0.0, updates - forward * (shape.layer_major ? shape.micro_batches : 1));
}

// Lower bound of one stage's step, without waits for other stages.
double stage_floor(const StepShape& shape, const Rates& rates) {
  const Work work = work_of(shape);
  const double compute = compute_of_micro_batch(shape, rates) * shape.micro_batches;
  const double host = over(adamw_updates(shape, work.away_elems), rates.host_adam);
  const double comm = over(work.wire_bytes, rates.comm_bps);
  const double disk = disk_floor(work.disk_reads, work.disk_writes, rates);
  const double in_turn = compute + updates_beyond_forward(shape, rates, work);
  return rates.shared_cores ? std::max({compute + host + comm, disk, in_turn})
                            : std::max({compute, host, comm, disk, in_turn});
}

}  // namespace

std::int64_t off_device_chunks(const StepShape& shape) {
  if (shape.placement.optimizer == Tier::kDevice) return 0;
  std::int64_t elems = 0;
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    elems += off_device_elems(shape, g);
  }
  return elems / shape.placement.chunk_elems;
}

int most_in_flight(const StepShape& shape) {
  if (!is_pipelined(shape)) return shape.layer_major ? shape.micro_batches : 1;
  return in_flight_limit(pipeline_run(shape), shape.pipeline.stage);
}

TierBytes memory_floor(const StepShape& shape) {
  TierBytes floor{};
  for (const StateRow& p : step_states(shape).rows) {
    nth(floor, p.tier) += p.tier_bytes();
  }
  floor[0] += kept_of_chunk(shape) * most_in_flight(shape);
  if (shape.placement.activations == Tier::kHost && shape.pipeline.stages == 1) {
    floor[1] += left_by_forward(shape) * most_in_flight(shape);
  }
  return floor;
}

// A stage begins after one forward of a chunk on each earlier stage, and the earlier stages end
// their backward after the stage. Of a split backward, only the half that the earlier stage waits
// for counts.
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
