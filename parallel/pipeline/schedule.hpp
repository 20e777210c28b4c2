// Pipeline schedules: the order in which a pipeline stage runs its forwards and backwards. Stage s
// of p, m micro-batches, v chunks per stage. Pure functions; thread-safe.
//
// clang-format off
//   gpipe        All forwards, then all backwards (Huang et al. 2019).
//   1f1b         p - 1 - s forwards first, then one forward and one backward in turn (PipeDream-
//                Flush, Narayanan et al. 2021).
//   interleaved  1f1b over v chunks, micro-batches in groups of p (Megatron, Narayanan et al. 2021,
//                section 2.2). If p does not divide m, the order is that of the next multiple of p
//                without the missing micro-batches. A suborder of a deadlock-free order is
//                deadlock-free.
//   zero_bubble  1f1b with the backward split in two: the gradient of the input, for which the
//                previous stage waits, and the gradients of the weights. Stage s delays the latter
//                by s micro-batches, which fills its bubble (ZB-H1, Qi et al. 2023). No stage holds
//                more micro-batches than the first stage of 1f1b.
// clang-format on
//
// Every chunk runs its micro-batches in order, in each direction. Chunk c of stage s is virtual
// stage c * stages + s of the model.
#pragma once

#include <vector>

#include "parallel/parallel_options.hpp"

namespace sluice {

enum class SlotKind { kForward, kBackward, kBackwardInput, kBackwardWeights };

// The work of one kind that one chunk does for one micro-batch.
struct Slot {
  SlotKind kind = SlotKind::kForward;
  int chunk = 0;
  int micro_batch = 0;
  bool operator==(const Slot&) const = default;
};

struct PipelineRun {
  PipelineSchedule schedule = PipelineSchedule::k1f1b;
  int stages = 1;
  int virtual_stages = 1;  // chunks per stage; above 1 for interleaved only
  int micro_batches = 1;
};

// Throws ConfigError for a count below 1, for virtual stages without the interleaved schedule, and
// for the interleaved schedule without virtual stages if there are several stages.
void check_pipeline_run(const PipelineRun& run);

// The slots of `stage` in execution order.
[[nodiscard]] std::vector<Slot> list_slots(const PipelineRun& run, int stage);

// The largest number of flights of `stage`: (chunk, micro-batch) pairs whose forward has run and
// whose input gradient has not, so the stage holds their activations.
[[nodiscard]] int in_flight_limit(const PipelineRun& run, int stage);

// --- time ---

// Duration of a slot of each kind, in any unit; > 0.
struct SlotCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weights = 1;

  [[nodiscard]] double of(SlotKind kind) const;
};

struct SlotTime {
  double begin = 0;
  double end = 0;
};

// Times of all slots in one common clock, by stage and slot. A slot begins when its stage is free
// and its input from another stage exists; sending takes no time. `slots`: by stage. Throws Error
// if slots wait for each other in a circle.
[[nodiscard]] std::vector<std::vector<SlotTime>> time_slots(
    const std::vector<std::vector<Slot>>& slots, const SlotCosts& costs = {});

// For each slot of `stage`: the index of the later slot before which the stage waits until its send
// has completed, so that the sent memory can be freed. The number of slots: the stage waits at the
// end. -1: the slot sends nothing.
// The index assumes unit SlotCosts, a receive that is posted one slot before its use, and at least
// one slot between the send and the wait. The waits cannot deadlock, however long slots really
// take: every wait points back in the common clock of time_slots().
[[nodiscard]] std::vector<int> slots_after_sends(const PipelineRun& run, int stage);

// The other end of a transfer: a stage and its slot. stage -1: there is no transfer.
struct SlotPeer {
  int stage = -1;
  Slot slot;
};
// `sends` true: the receiver of the slot's output. False: the sender of the slot's input.
[[nodiscard]] SlotPeer peer_of(const Slot& slot, int stage, int stages, int virtual_stages,
                               bool sends);

}  // namespace sluice
