// Writes the transfers of units' inputs off-device and back. Without recomputation, the activations
// that a unit keeps for backward move with its input. Pure.
//
// An input leaves the device while the next unit runs. The device buffer dies before the unit after
// that. The input returns while the backward before its own runs. The last unit before the loss
// head keeps its input, because its backward runs next.
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

  // Called before use i is emitted. Starts the fetches for the next backwards. `op` frees the
  // buffers of inputs that have left, and waits for the input that it needs.
  void enter(std::size_t i, Op& op);
  // Called after a unit's forward. `kept`: buffer of the activations for backward (-1: none).
  void forward_done(const Use& use, BufferId input, BufferId kept);
  // The device buffer with a backward's fetched input and kept activations; -1: both never left.
  [[nodiscard]] BufferId fetched(const Use& use) const;

 private:
  struct Travel {
    BufferId device = -1;  // the input while it leaves; later the buffer it is fetched to
    BufferId kept = -1;    // leaves with the input
    std::int64_t bytes = 0;
    BufferId host = -1;  // on the host tier it lives from save to fetch; on NVMe, one per way
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
  std::deque<Use> leaving_;                   // inputs that leave the device, oldest first
};

}  // namespace sluice
