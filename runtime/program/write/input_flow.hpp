// Writes the way of units' inputs off the device and back; without recomputation, together with
// what the units keep for backward. Pure.
//
// An input is on its way out while the next unit runs, and gone from the device by the one after.
// It comes back while the backward before its own runs. The last unit before the loss head keeps
// its input: its backward is next.
//
//   SaveInput -> (WriteInput) ... (ReadInput) -> FetchInput
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "runtime/program/step_shape.hpp"
#include "runtime/program/write/program_builder.hpp"

namespace sluice {

class InputFlow {
 public:
  InputFlow(ProgramBuilder& builder, const StepShape& shape, std::span<const Use> uses,
            bool training);

  // Before use i is emitted: starts the fetches of backwards that are near; `op` takes back what
  // has left, and waits for the input it needs.
  void enter(std::size_t i, Op& op);
  // After a unit's forward: buffers on the device of its input and of what it keeps (-1: nothing).
  void forward_done(const Use& use, BufferId input, BufferId kept);
  // What a backward's input, and what was kept with it, was fetched to; -1: they never left.
  [[nodiscard]] BufferId fetched(const Use& use) const;

 private:
  struct Travel {
    BufferId device = -1;  // the input that is leaving, or what it came back to
    BufferId kept = -1;    // leaving with it
    std::int64_t bytes = 0;
    BufferId host = -1;  // slot of the way out or back; of the host tier, between them too
    OpId saved = -1;     // last operation of the way out
    OpId fetched = -1;
    bool away = false;
  };

  [[nodiscard]] Travel& travel(int unit, int micro_batch);
  void start_fetch(const Use& use);
  void retire_oldest(Op& op);

  ProgramBuilder& builder_;
  const StepShape& shape_;
  const std::span<const Use> uses_;
  const bool active_;
  std::vector<std::vector<Travel>> travels_;  // by unit, micro-batch
  std::deque<Use> leaving_;                   // on their way out, oldest first
};

}  // namespace sluice
