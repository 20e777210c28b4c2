// The optimizer and the loss scale: the `optimizer:` and `loss_scale:` sections.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/index.hpp"

namespace sluice {

enum class OptimizerType { kAdamW, kLion, kSgd };

// The keys that an optimizer reads in addition to lr and weight_decay. zero/optimizer_rule.hpp has
// the moments and the arithmetic.
struct OptimizerKeys {
  std::string_view name;
  std::array<double, 2> betas{};  // defaults; {0, 0}: not read
  bool eps = false;
  bool momentum = false;
  bool decoupled = false;
  bool bias_correction = false;
};

// In the order of OptimizerType.
inline constexpr std::array kOptimizerKeys{
    OptimizerKeys{
        .name = "adamw",
        .betas = {0.9, 0.95},
        .eps = true,
        .decoupled = true,
        .bias_correction = true,
    },
    OptimizerKeys{.name = "lion", .betas = {0.9, 0.99}},
    OptimizerKeys{.name = "sgd", .momentum = true},
};
[[nodiscard]] constexpr const OptimizerKeys& keys_of(OptimizerType type) {
  return nth(kOptimizerKeys, type);
}

// Parameters that weight decay applies to. kMatrices: TensorSpec::decay.
enum class DecayScope { kMatrices, kAll };

struct OptimizerOptions {
  OptimizerType type = OptimizerType::kAdamW;
  double lr = 3e-4;
  std::array<double, 2> betas = keys_of(OptimizerType::kAdamW).betas;
  double eps = 1e-8;
  double momentum = 0.9;
  double weight_decay = 0.1;
  DecayScope decay = DecayScope::kMatrices;
  bool decoupled = true;        // AdamW; false: weight decay is part of the gradient (L2)
  bool bias_correction = true;  // AdamW; false: moments are not divided by 1 - beta^step
};

struct LossScaleOptions {
  double fixed = 0;  // a static scale; 0: dynamic, by the members below
  double initial = 65536;
  std::int64_t window = 1000;
  std::int64_t first_window = 0;  // after the start and after an overflow; 0: window
  int hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min = 1;
};

}  // namespace sluice
