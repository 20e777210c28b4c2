// Dynamic loss scale of fp16 training (Micikevicius et al. 2018, section 3.2). Pure.
//
// A step whose gradients overflow is skipped and costs one of `hysteresis` lives. With no life left
// the scale halves, but not below `min`. After `window` steps in a row without overflow the scale
// doubles and the lives are full again. A checkpoint holds the state.
#pragma once

#include <cstdint>

#include "zero/optimizer_options.hpp"

namespace sluice {

struct LossScaleState {
  double scale = 65536;
  std::int64_t good_steps = 0;  // in a row
  int lives = 2;
};

class LossScaler {
 public:
  explicit LossScaler(const LossScaleOptions& options)
      : options_(options), state_{options.initial, 0, options.hysteresis} {}

  [[nodiscard]] double scale() const { return state_.scale; }
  [[nodiscard]] const LossScaleState& state() const { return state_; }
  void restore(const LossScaleState& state) { state_ = state; }

  // Called after each step. Returns false if the step overflowed at the lowest scale.
  [[nodiscard]] bool update(bool overflowed);

 private:
  LossScaleOptions options_;
  LossScaleState state_;
};

}  // namespace sluice
