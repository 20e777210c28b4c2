// Gather, and the arena slots of gathered groups. Release has no action: the slot dies with it.
//
// enter() and the slots: executing thread. gather(): the thread of the comm lane, with addresses
// taken in enter(), because a group may have a newer slot by the time the wire comes to the Gather.
#pragma once

#include <vector>

#include "parallel/comm/communicator.hpp"
#include "runtime/engine/ops/step_parts.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

class ParameterOps {
 public:
  explicit ParameterOps(const StepParts& parts);

  void begin_program();
  void bind(const Buffer& buffer);  // of a gathered group: its parameters point into the slot
  void unbind(const Buffer& buffer);
  void enter_gather(const Op& op);
  [[nodiscard]] Ticket gather(const Op& op);

 private:
  const EngineSetup& setup_;
  const ProgramMemory& memory_;
  StepRun& run_;
  GroupStore& store_;
  StepCarry& carry_;
  std::vector<std::vector<AllGatherPiece>> pieces_;  // by operation; none: the group is fresh
};

}  // namespace sluice
