#include "zero/loss_scaler.hpp"

#include <algorithm>

namespace sluice {

bool LossScaler::update(bool overflowed) {
  if (!overflowed) {
    if (++state_.good_steps == options_.window) {
      state_.good_steps = 0;
      state_.lives = options_.hysteresis;
      state_.scale *= 2;
    }
    return true;
  }
  state_.good_steps = 0;
  if (state_.lives > 1) {
    --state_.lives;
    return true;
  }
  if (state_.scale <= options_.min) return false;
  state_.scale = std::max(state_.scale / 2, options_.min);
  return true;
}

}  // namespace sluice
