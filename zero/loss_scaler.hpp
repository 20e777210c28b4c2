// Loss scale of fp16 training (Micikevicius et al. 2018, section 3.2). Pure.
//
// A static scale never changes. A dynamic scale follows the overflows. A step whose gradients
// overflow is skipped and costs one of `hysteresis` lives. With no life left the scale halves, but
// not below `min`. After `window` steps in a row without overflow the scale doubles and the lives
// are full again. With `consecutive_hysteresis`, each step without overflow makes the lives full.
// The first doubling after the start, and after an overflow, takes `first_window` steps. A
// checkpoint holds the state.
//
// DeepSpeed's DynamicLossScaler (runtime/fp16/loss_scaler.py, of ZeRO 1 to 3) compares the number
// of steps *before* the present one with its window. So its first doubling comes one step later:
// first_window = window + 1. All other rules of DynamicLossScaler and of this class agree.
// DeepSpeed without ZeRO (fused_optimizer.py) has no lives, hysteresis = 1, and does not stop the
// run at the lowest scale.
#pragma once

#include <cstdint>

#include "zero/optimizer_options.hpp"

namespace sluice {

struct LossScaleState {
  double scale = 65536;
  // Steps without overflow in a row. Starts at window - first_window, so may be negative.
  std::int64_t good_steps = 0;
  int lives = 2;  // 0: not of a dynamic scale
};

class LossScaler {
 public:
  explicit LossScaler(const LossScaleOptions& options);

  [[nodiscard]] double scale() const { return state_.scale; }
  [[nodiscard]] const LossScaleState& state() const { return state_; }
  // No effect if this scale is static, or if `state` is that of a static scale (lives 0).
  void restore(const LossScaleState& state);

  // Called after each step. Returns false if the step overflowed at the lowest dynamic scale.
  [[nodiscard]] bool update(bool overflowed);

 private:
  [[nodiscard]] bool is_static() const { return options_.fixed > 0; }
  // The value of state_.good_steps at the start and after an overflow.
  [[nodiscard]] std::int64_t before_first() const;

  LossScaleOptions options_;
  LossScaleState state_;
};

}  // namespace sluice
