// All that crosses from one program to the next. The carry alone decides which operations are
// skipped or redirected for that reason; operations themselves are never rewritten.
//
// clang-format off
// Deferred update (optimizer states off-device). The norm is known at the end of a step, so the
// next program begins with the update, chunk by chunk:
//
//   none --defer()--> deferred --begin_step(), begin_settling()--> applying --end_*()--> none
//
// Without a deferred update, the chunks' operations of a program do nothing.
//
// Speculative update (offload.speculate). Chunks with early gradients are updated during the step,
// as if the step were not clipped:
//
//   off --4 unclipped steps in a row--> on --begin_step()--> speculating --end_step()--> kept | redone
//
//   kept    the step was not clipped: the deferred update skips the chunks that are updated already
//   redone  the step was clipped or thrown away: the deferred update computes all chunks; a clipped
//           or thrown away step turns speculation off. A step that is thrown away has no deferred
//           update: begin_remaking() ... end_remaking() make replaced parameters again
//
// Every rank decides alike, because the norm has the same bits on all ranks.
//
// Fresh parameters. A resident group is fresh from its gather to its next change:
//
//   stale --begin_gather()--> fresh --parameters_changed(), an applied update--> stale
//
// The Gather of a fresh group does nothing.
// clang-format on
//
// Called on the executing thread. Lanes read the update through TierStore while a program runs; the
// carry changes the update between programs only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/index.hpp"
#include "runtime/engine/ops/step_result.hpp"
#include "runtime/engine/update_step.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

class TierStore;

class StepCarry {
 public:
  // `tiers`: null where everything lives on the device. Both arguments outlive the carry.
  StepCarry(const StepShape& shape, TierStore* tiers);

  // Around the program of a training step. `unclipped`: the step's update if it is not clipped.
  // `clipped`: the step was clipped or thrown away.
  void begin_step(const UpdateArgs& unclipped);
  void end_step(bool clipped);
  // Around a program that applies the deferred update alone. begin_settling() returns false, and
  // needs no end, where no update is deferred.
  [[nodiscard]] bool begin_settling();
  void end_settling();
  // The deferred update computes all chunks, whatever the last step speculated.
  void forget_speculation();
  // Around a program of updates that makes the parameters again which a thrown away or forgotten
  // speculation has replaced. begin_remaking() returns false, and needs no end, where there are
  // none.
  [[nodiscard]] bool begin_remaking();
  void end_remaking();

  // Leaves the step's update of states off-device to the next program.
  void defer(const UpdateArgs& update);
  [[nodiscard]] bool has_deferred() const { return deferred_.has_value(); }
  // Whether the next training step executes everything in its program (Engine::next_step_is_whole).
  [[nodiscard]] bool next_step_is_whole() const;

  // Whether a Gather has to communicate. From then on a resident group is fresh.
  [[nodiscard]] bool begin_gather(int group);
  void parameters_changed(int group) { nth(fresh_, group) = 0; }

  // A training step has completed since the engine was made.
  [[nodiscard]] bool has_trained() const { return trained_; }
  [[nodiscard]] SpeculationCounts speculation_counts() const { return counts_; }

 private:
  void begin_updates();
  void end_updates();
  void begin_speculation(const UpdateArgs& unclipped);
  void end_speculation(bool clipped);
  [[nodiscard]] bool defers() const { return shape_.placement.optimizer != Tier::kDevice; }
  [[nodiscard]] bool next_step_speculates() const;

  const StepShape& shape_;
  TierStore* const tiers_;
  std::optional<UpdateArgs> deferred_;
  UpdateArgs applying_;
  std::optional<UpdateArgs> speculating_;
  bool lost_ = false;  // the last step speculated for nothing, and was not clipped
  bool kept_ = false;  // the chunks of the last speculation have the deferred update already
  std::int64_t unclipped_steps_ = 0;  // in a row, up to the last step
  SpeculationCounts counts_;
  std::vector<char> fresh_;  // by group
  bool trained_ = false;
};

}  // namespace sluice
