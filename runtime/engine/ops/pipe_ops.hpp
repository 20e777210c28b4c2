// Messages between pipeline stages: SendActivation, ReceiveActivation, SendGradient,
// ReceiveGradient. Executing thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "base/ticket.hpp"
#include "runtime/engine/ops/flights.hpp"
#include "runtime/engine/ops/step_parts.hpp"

namespace sluice {

class PipeOps {
 public:
  explicit PipeOps(const StepParts& parts);

  void begin_program();
  void unbind(BufferId id);          // of a sent tensor: the send has completed
  void enter_receive(const Op& op);  // makes the tensor to receive into
  [[nodiscard]] Ticket receive(const Op& op);
  [[nodiscard]] Ticket send(const Op& op);

 private:
  const EngineSetup& setup_;
  const StepRun& run_;
  Flights& flights_;
  std::vector<at::Tensor> sent_;  // by buffer
};

}  // namespace sluice
