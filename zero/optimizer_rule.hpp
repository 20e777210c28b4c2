// The rule of an optimizer: everything that the rest of the program knows of it. Pure.
//
// Its name and its keys are in optimizer_options.hpp. An optimizer keeps fp32 master weights and
// some moments. Moments begin at 0. Shards, chunks, tiers, checkpoints and plans take the list of
// moments from the rule.
#pragma once

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
  std::span<const StateKind> moments;  // in the order of UpdateSpan::moments
  bool narrow_moments = false;         // off the device, moments may be held in bf16
  UpdateScope scope = UpdateScope::kElement;
  void (*update)(const UpdateSpan& span) = nullptr;  // on the host
  const char* cuda_symbol = nullptr;                 // of the CUDA module: a CudaUpdate
};

[[nodiscard]] const OptimizerRule& rule_of(OptimizerType type);
// All, in the order of OptimizerType.
[[nodiscard]] std::span<const OptimizerRule> optimizer_rules();

}  // namespace sluice
