// Gradients between the units and the update: ReduceGrads, AddGrads, GatherGrads, AddReplicas, and
// the arena slots of full gradients.
//
// enter_reduce() and the slots: executing thread. reduce(): the thread of the comm lane, with
// addresses taken in enter_reduce(). The other operations run on the compute lane, except
// gather(), which runs on the comm lane over buffers that stay in place.
#pragma once

#include <vector>

#include "parallel/comm/communicator.hpp"
#include "runtime/engine/ops/step_parts.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

class GradientOps {
 public:
  explicit GradientOps(const StepParts& parts);

  void begin_program();
  void bind(const Buffer& buffer);  // of a group's full gradients
  void unbind(const Buffer& buffer);
  void enter_reduce(const Op& op);
  [[nodiscard]] Ticket reduce(const Op& op);
  void add_streams(const Op& op);  // AddGrads
  [[nodiscard]] Ticket gather(const Op& op);
  void add_replicas(const Op& op);

 private:
  const EngineSetup& setup_;
  const ProgramMemory& memory_;
  StepRun& run_;
  GroupStore& store_;
  TierStore* const tiers_;
  std::vector<std::vector<ReduceScatterPiece>> pieces_;  // by operation
};

}  // namespace sluice
