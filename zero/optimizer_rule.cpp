#include "zero/optimizer_rule.hpp"

#include <array>
#include <cstddef>

#include "kernels/cpu/update/adamw.hpp"
#include "kernels/cpu/update/lion.hpp"
#include "kernels/cpu/update/sgd.hpp"

namespace sluice {
namespace {

constexpr std::array kRules{
    OptimizerRule{.type = OptimizerType::kAdamW,
                  .moments = 2,
                  .narrow_moments = true,
                  .update = adamw,
                  .cuda_symbol = "sluice_cuda_adamw"},
    OptimizerRule{.type = OptimizerType::kLion,
                  .moments = 1,
                  .narrow_moments = true,
                  .update = lion,
                  .cuda_symbol = "sluice_cuda_lion"},
    OptimizerRule{.type = OptimizerType::kSgd,
                  .moments = 1,
                  .narrow_moments = true,
                  .update = sgd,
                  .cuda_symbol = "sluice_cuda_sgd"},
};

}  // namespace

const OptimizerRule& rule_of(OptimizerType type) { return kRules[static_cast<std::size_t>(type)]; }

std::span<const OptimizerRule> optimizer_rules() { return kRules; }

}  // namespace sluice
