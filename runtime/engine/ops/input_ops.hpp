// SaveInput, FetchInput, and the buffers of units' inputs: activations that leave the device
// between forward and backward. Tensors stay and only their memory leaves, so views and shapes are
// valid again when the memory comes back.
//
//   on the device --buffer dies (SaveInput has completed)--> without memory --FetchInput--> on the
//   device --backward--> gone
//
// Between pipeline stages FetchInput may come before SaveInput is known to have completed. Memory
// that is still being read then moves to `leaving_` until its buffer dies.
//
// bind(), unbind(), enter_move(): executing thread. move(): the thread of a copy lane, with
// addresses taken in enter_move().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "offload/device_copies.hpp"
#include "runtime/engine/ops/flights.hpp"
#include "runtime/engine/ops/step_parts.hpp"

namespace sluice {

class InputOps {
 public:
  explicit InputOps(const StepParts& parts);

  void begin_program();
  void bind(BufferId id);
  void unbind(BufferId id);
  void enter_move(const Op& op);
  void move(const Op& op);

 private:
  [[nodiscard]] bool comes_back(const Buffer& buffer, const at::Tensor& input) const;

  const EngineSetup& setup_;
  const StepRun& run_;
  Flights& flights_;
  DeviceCopies* const copies_;
  TierStore* const tiers_;
  std::vector<std::vector<std::pair<DevicePtr, std::int64_t>>> moves_;  // by operation: runs
  std::map<BufferId, std::vector<c10::DataPtr>> leaving_;
};

}  // namespace sluice
