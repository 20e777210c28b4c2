// Messages between pipeline stages: SendActivation, ReceiveActivation, SendGradient,
// ReceiveGradient. Executing thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "base/ticket.hpp"
#include "runtime/engine/ops/flights.hpp"
#include "runtime/engine/ops/step_parts.hpp"

namespace sluice {

class StepGraphs;

class PipeOps {
 public:
  // `graphs`: knows the places of recorded messages.
  PipeOps(const StepParts& parts, StepGraphs& graphs);

  void begin_program();
  void unbind(BufferId id);  // of a sent tensor: the send has completed
  [[nodiscard]] Ticket receive(const Op& op);
  [[nodiscard]] Ticket send(const Op& op);

 private:
  const EngineSetup& setup_;
  const StepRun& run_;
  Flights& flights_;
  StepGraphs& graphs_;
  std::vector<at::Tensor> sent_;  // by buffer
};

}  // namespace sluice
