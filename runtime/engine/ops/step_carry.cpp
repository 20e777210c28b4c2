#include "runtime/engine/ops/step_carry.hpp"

#include <algorithm>
#include <utility>

#include "runtime/engine/tiers/tier_store.hpp"

namespace sluice {

StepCarry::StepCarry(const StepShape& shape, TierStore* tiers)
    : shape_(shape), tiers_(tiers), fresh_(shape.groups.size(), 0) {}

void StepCarry::begin_step(const UpdateArgs& unclipped) {
  begin_updates();
  begin_speculation(unclipped);
}

void StepCarry::end_step(bool clipped) {
  trained_ = true;
  end_updates();
  end_speculation(clipped);
}

bool StepCarry::begin_settling() {
  if (!deferred_) return false;
  begin_updates();
  return true;
}

void StepCarry::end_settling() { end_updates(); }

void StepCarry::forget_speculation() {
  if (std::exchange(kept_, false)) lost_ = true;
}

bool StepCarry::begin_remaking() {
  if (!std::exchange(lost_, false) || !tiers_->replaced_params()) return false;
  tiers_->set_remaking(true);
  return true;
}

void StepCarry::end_remaking() { tiers_->set_remaking(false); }

void StepCarry::defer(const UpdateArgs& update) {
  if (defers()) deferred_ = update;
}

void StepCarry::begin_updates() {
  if (!deferred_) return;
  applying_ = *deferred_;
  deferred_.reset();
  tiers_->set_update(&applying_, std::exchange(kept_, false));
  std::fill(fresh_.begin(), fresh_.end(), 0);
}

// The update has completed. A program that runs the step once more updates nothing.
void StepCarry::end_updates() {
  if (tiers_ != nullptr) tiers_->set_update(nullptr);
}

bool StepCarry::next_step_speculates() const {
  constexpr std::int64_t kUnclippedSteps = 4;
  return tiers_ != nullptr && tiers_->speculates() && unclipped_steps_ >= kUnclippedSteps;
}

bool StepCarry::next_step_is_whole() const {
  if (!defers()) return true;
  if (!tiers_->speculates()) return has_deferred();
  return has_deferred() && kept_ && next_step_speculates();
}

void StepCarry::begin_speculation(const UpdateArgs& unclipped) {
  if (!next_step_speculates()) return;
  speculating_ = unclipped;
  tiers_->set_speculation(&*speculating_);
}

// Speculation is kept only where the deferred update is the very same update.
void StepCarry::end_speculation(bool clipped) {
  if (tiers_ != nullptr) tiers_->set_speculation(nullptr);
  const bool speculated = std::exchange(speculating_, std::nullopt).has_value();
  unclipped_steps_ = clipped ? 0 : unclipped_steps_ + 1;
  lost_ = speculated && !has_deferred();
  kept_ = speculated && !clipped && has_deferred();
  if (speculated) ++(kept_ ? counts_.kept : counts_.redone);
  if (kept_) counts_.chunks += tiers_->updated_early();
}

bool StepCarry::begin_gather(int group) {
  const auto g = static_cast<std::size_t>(group);
  if (fresh_[g] != 0) return false;
  fresh_[g] = shape_.groups[g].resident ? 1 : 0;
  return true;
}

}  // namespace sluice
