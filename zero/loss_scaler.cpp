#include "zero/loss_scaler.hpp"

#include <algorithm>

namespace sluice {

LossScaler::LossScaler(const LossScaleOptions& options) : options_(options) {
  state_ = is_static() ? LossScaleState{options.fixed, 0, 0}
                       : LossScaleState{options.initial, before_first(), options.hysteresis};
}

void LossScaler::restore(const LossScaleState& state) {
  if (!is_static() && state.lives > 0) state_ = state;
}

bool LossScaler::update(bool overflowed) {
  if (is_static()) return true;
  if (!overflowed) {
    if (options_.consecutive_hysteresis) state_.lives = options_.hysteresis;
    if (++state_.good_steps >= options_.window) {
      state_.good_steps = 0;
      state_.lives = options_.hysteresis;
      state_.scale *= 2;
    }
    return true;
  }
  state_.good_steps = before_first();
  if (state_.lives > 1) {
    --state_.lives;
    return true;
  }
  if (state_.scale <= options_.min) return false;
  state_.scale = std::max(state_.scale / 2, options_.min);
  return true;
}

std::int64_t LossScaler::before_first() const {
  return options_.first_window == 0 ? 0 : options_.window - options_.first_window;
}

}  // namespace sluice
