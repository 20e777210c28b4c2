// The rule of an optimizer: everything that the rest of the program knows of it. Pure.
//
// Its name and its keys are in optimizer_options.hpp. An optimizer keeps fp32 master weights and
// some moments. Moments begin at 0. Shards, chunks, tiers, checkpoints and plans take the list of
// moments from the rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/update/update_span.hpp"
#include "zero/optimizer_options.hpp"
#include "zero/state_kind.hpp"

namespace sluice {

// The least that an update must see at once. Shards and chunks cut parameters between any two
// elements, so an optimizer of whole matrices needs another partition.
enum class UpdateScope { kElement, kMatrix };

struct OptimizerRule {
  OptimizerType type = OptimizerType::kAdamW;
  // Beside the master weights: the first kinds after kMaster, in the order of UpdateSpan::moments.
  std::size_t moments = 0;
  bool narrow_moments = false;  // off the device, moments may be held in bf16
  UpdateScope scope = UpdateScope::kElement;
  void (*update)(const UpdateSpan& span) = nullptr;  // on the host
  const char* cuda_symbol = nullptr;                 // of the CUDA module: a CudaUpdate

  // Master weights and moments.
  [[nodiscard]] constexpr std::span<const StateKind> states() const {
    return std::span(kStateKinds).first(1 + moments);
  }
  [[nodiscard]] constexpr std::span<const StateKind> moment_kinds() const {
    return states().subspan(1);
  }
  // Bytes of fp32 states read and written and of a gradient read, for one element.
  [[nodiscard]] constexpr std::int64_t moved_bytes() const {
    return 12 + 8 * static_cast<std::int64_t>(moments);
  }
};

[[nodiscard]] const OptimizerRule& rule_of(OptimizerType type);
// All, in the order of OptimizerType.
[[nodiscard]] std::span<const OptimizerRule> optimizer_rules();
// Throws ConfigError, by key, if shards or moments of this type do not suit the optimizer.
void check_rule(const OptimizerRule& rule, DType moments);

}  // namespace sluice
