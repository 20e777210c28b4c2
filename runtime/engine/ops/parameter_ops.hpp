// Gather, and the arena slots of gathered groups. Release has no action: the slot dies with it.
//
// A group without a shard is rounded from its master weights into the rank's place of the slot, and
// gathered from there.
//
// enter() and the slots: executing thread. gather(): the thread of the comm lane, with addresses
// taken in enter(), because a group may have a newer slot when the comm lane starts the Gather.
// round(): the Gather of a rank alone, on the executing thread; recordable (StepGraphs).
#pragma once

#include <ATen/core/Tensor.h>

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
  void round(const Op& op);

 private:
  struct Gather {
    std::vector<AllGatherPiece> pieces;  // none: the group is fresh
    at::Tensor rounded;                  // the rank's place, if the group has no shard
  };

  [[nodiscard]] at::Tensor own_place(const Op& op) const;

  const EngineSetup& setup_;
  const ProgramMemory& memory_;
  StepRun& run_;
  GroupStore& store_;
  StepCarry& carry_;
  std::vector<Gather> gathers_;  // by operation
};

}  // namespace sluice
