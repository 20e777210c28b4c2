// The rule of an optimizer: its moments and its arithmetic. Pure.
//
// optimizer_options.hpp has the optimizer's name and keys. An optimizer keeps fp32 master weights
// and some moments. Moments begin at 0. Shards, chunks, tiers, checkpoints and plans take the list
// of moments from the rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "kernels/cpu/update/update_span.hpp"
#include "zero/optimizer_options.hpp"
#include "zero/state_kind.hpp"

namespace sluice {

// The smallest unit of an update. Shards and chunks cut parameters between any two elements, so an
// optimizer of whole matrices needs another partition.
enum class UpdateScope { kElement, kMatrix };

struct OptimizerRule {
  OptimizerType type = OptimizerType::kAdamW;
  // Number of moments: the first kinds after kMaster, in the order of UpdateSpan::moments.
  std::size_t moments = 0;
  bool narrow_moments = false;  // moments may be held in bf16
  UpdateScope scope = UpdateScope::kElement;
  void (*update)(const UpdateSpan& span) = nullptr;  // on the host
  const char* cuda_symbol = nullptr;                 // a CudaUpdate of the CUDA module

  // Master weights and moments.
  [[nodiscard]] constexpr std::span<const StateKind> states() const {
    return std::span(kStateKinds).first(1 + moments);
  }
  [[nodiscard]] constexpr std::span<const StateKind> moment_kinds() const {
    return states().subspan(1);
  }
  // Bytes per element: states read and written, with moments of `type`, and an fp32 gradient read.
  [[nodiscard]] constexpr std::int64_t moved_bytes(DType type = DType::kFloat32) const {
    return 12 + 2 * size_of(type) * static_cast<std::int64_t>(moments);
  }
};

[[nodiscard]] const OptimizerRule& rule_of(OptimizerType type);
// In the order of OptimizerType.
[[nodiscard]] std::span<const OptimizerRule> optimizer_rules();
// Throws ConfigError with the key if the optimizer cannot use shards, or moments of this type.
void check_rule(const OptimizerRule& rule, DType moments);

}  // namespace sluice
