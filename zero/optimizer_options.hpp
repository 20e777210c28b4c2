// The optimizer and the loss scale: the `optimizer:` and `loss_scale:` sections.
#pragma once

#include <array>
#include <cstdint>

namespace sluice {

enum class OptimizerType { kAdamW };

struct OptimizerOptions {
  OptimizerType type = OptimizerType::kAdamW;
  double lr = 3e-4;
  std::array<double, 2> betas{0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
};

struct LossScaleOptions {
  double initial = 65536;
  std::int64_t window = 1000;
  int hysteresis = 2;
  double min = 1;
};

}  // namespace sluice
