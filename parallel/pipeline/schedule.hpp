// Pipeline schedules: in which order a stage runs its forwards and backwards. Pure functions;
// thread-safe.
//
//   gpipe        all forwards, then all backwards (Huang et al. 2019)
//   1f1b         p - 1 - s forwards ahead, then one forward and one backward in turn (PipeDream-
//                Flush, Narayanan et al. 2021)
//   interleaved  1f1b over v chunks a stage, micro-batches in groups of p (Megatron, Narayanan et
//                al. 2021, section 2.2). Where p does not divide m, the order is that of the next
//                multiple without the micro-batches that are not there: what was free of deadlock
//                stays so.
//   zero_bubble  1f1b with the backward in two: the gradient of the input, which the stage before
//                waits for, and those of the weights, which stage s puts off by s micro-batches
//                and so into what was its bubble (ZB-H1, Qi et al. 2023). No stage holds more
//                micro-batches than 1f1b's first does.
//
// Every chunk runs its micro-batches in turn, in each direction. Chunk c of stage s is stage
// c * stages + s of the model.
#pragma once

#include <vector>

#include "parallel/parallel_options.hpp"

namespace sluice {

enum class SlotKind { kForward, kBackward, kBackwardInput, kBackwardWeights };

// One chunk's work of one kind on one micro-batch.
struct Slot {
  SlotKind kind = SlotKind::kForward;
  int chunk = 0;
  int micro_batch = 0;
  bool operator==(const Slot&) const = default;
};

struct PipelineRun {
  PipelineSchedule schedule = PipelineSchedule::k1f1b;
  int stages = 1;
  int virtual_stages = 1;  // chunks a stage: 1, but for interleaved
  int micro_batches = 1;
};

// Throws ConfigError: virtual stages under another schedule than interleaved, which needs them; a
// count below 1.
void check_pipeline_run(const PipelineRun& run);

// In the order in which `stage` runs them.
[[nodiscard]] std::vector<Slot> list_slots(const PipelineRun& run, int stage);

// The most slots whose forward has run and whose backward (of the input) has not, at `stage`:
// chunks times micro-batches whose activations it holds.
[[nodiscard]] int in_flight_limit(const PipelineRun& run, int stage);

// --- time ---

// Of a slot of each kind, in any unit; > 0.
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

// All stages together, by stage and slot: each slot begins when the stage is free and what it needs
// from another one is made; sending takes no time. `slots`: by stage. Throws Error if they wait for
// each other in a circle.
[[nodiscard]] std::vector<std::vector<SlotTime>> time_slots(
    const std::vector<std::vector<Slot>>& slots, const SlotCosts& costs = {});

// By slot of `stage`: before which of its later slots the peer has what it sends, if slots take
// their SlotCosts, the peer receives as soon as it comes to the slot before the one that needs it,
// and at least one slot lies between; the number of slots: only at the end; -1: it sends nothing.
// Waiting there cannot deadlock however long slots really take: every wait points back in the one
// time of time_slots.
[[nodiscard]] std::vector<int> slots_after_sends(const PipelineRun& run, int stage);

// Who needs what a slot sends: the stage and the slot there; stage -1: nobody.
struct SlotPeer {
  int stage = -1;
  Slot slot;
};
// `sends`: of what the slot makes; else: who makes what it needs from another stage.
[[nodiscard]] SlotPeer peer_of(const Slot& slot, int stage, int stages, int virtual_stages,
                               bool sends);

}  // namespace sluice
