// The handlers of all operations, and which handler an operation goes to.
//
// For each operation, in this order: enter() ends and begins the life of its buffers and takes the
// addresses it works on (executing thread); run() does its work (thread of its lane); leave() ends
// the life of buffers after it (executing thread, compute lane only).
#pragma once

#include "runtime/engine/ops/batch_ops.hpp"
#include "runtime/engine/ops/compute_ops.hpp"
#include "runtime/engine/ops/gradient_ops.hpp"
#include "runtime/engine/ops/input_ops.hpp"
#include "runtime/engine/ops/norm_ops.hpp"
#include "runtime/engine/ops/parameter_ops.hpp"
#include "runtime/engine/ops/pipe_ops.hpp"
#include "runtime/engine/ops/step_graphs.hpp"
#include "runtime/engine/ops/step_scalars.hpp"
#include "runtime/engine/ops/update_ops.hpp"

namespace sluice {

class StepOps {
 public:
  // Collective (NormOps).
  StepOps(const StepParts& parts, RowSource train, RowSource valid);

  void begin_program();  // that of StepRun
  void end_program();    // all operations have run
  void enter(const Op& op);
  // Called before the executing thread waits for the operation's `waits`.
  void waits(const Op& op);
  [[nodiscard]] Ticket run(const Op& op);
  void leave(const Op& op) { unbind(op.dead_after); }

  [[nodiscard]] BatchOps& batches() { return batch_; }
  [[nodiscard]] ComputeOps& compute() { return compute_; }

 private:
  void bind(const std::vector<BufferId>& buffers);
  void unbind(const std::vector<BufferId>& buffers);
  // Runs an operation by itself or in a graph.
  void run_recorded(const Op& op);
  [[nodiscard]] Ticket run_other(const Op& op);
  [[nodiscard]] Ticket communicate(const Op& op);
  [[nodiscard]] Ticket run_between_tiers(const Op& op);
  [[nodiscard]] Ticket commit();

  const ProgramMemory& memory_;
  StepRun& run_;
  Flights& flights_;
  RunImage& image_;
  DeviceCopies* const copies_;
  TierStore* const tiers_;
  OpClock* const clock_;
  BatchOps batch_;
  StepScalars scalars_;
  ComputeOps compute_;
  ParameterOps parameters_;
  StepGraphs graphs_;
  GradientOps gradients_;
  NormOps norm_;
  UpdateOps update_;
  InputOps inputs_;
  PipeOps pipe_;
};

}  // namespace sluice
