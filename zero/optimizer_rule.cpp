#include "zero/optimizer_rule.hpp"

#include <array>
#include <cstddef>
#include <string>

#include "base/error.hpp"
#include "base/index.hpp"
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

constexpr bool in_order() {
  for (std::size_t i = 0; i < kRules.size(); ++i) {
    if (kRules[i].type != static_cast<OptimizerType>(i)) return false;
  }
  return kRules.size() == kOptimizerKeys.size();
}
static_assert(in_order(), "rows in the order of OptimizerType, one for each of kOptimizerKeys");

}  // namespace

const OptimizerRule& rule_of(OptimizerType type) { return nth(kRules, type); }

std::span<const OptimizerRule> optimizer_rules() { return kRules; }

void check_rule(const OptimizerRule& rule, DType moments) {
  const std::string type = "optimizer.type: " + std::string(keys_of(rule.type).name);
  if (rule.scope == UpdateScope::kMatrix) {
    throw ConfigError(type + " needs whole matrices, and shards and chunks cut them");
  }
  if (moments != DType::kFloat32 && !rule.narrow_moments) {
    throw ConfigError(type + " keeps its moments in fp32; leave out offload.states_dtype");
  }
}

}  // namespace sluice
