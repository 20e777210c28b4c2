#include "zero/optimizer_rule.hpp"

#include <array>
#include <cstddef>

#include "kernels/cpu/update/adamw.hpp"

namespace sluice {
namespace {

constexpr std::array kRules{
    OptimizerRule{.type = OptimizerType::kAdamW,
                  .moments = 2,
                  .narrow_moments = true,
                  .update = adamw,
                  .cuda_symbol = "sluice_cuda_adamw"},
};

}  // namespace

const OptimizerRule& rule_of(OptimizerType type) { return kRules[static_cast<std::size_t>(type)]; }

std::span<const OptimizerRule> optimizer_rules() { return kRules; }

}  // namespace sluice
