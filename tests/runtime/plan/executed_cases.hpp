// Configurations for comparing plans with runs. Every value of every dimension meets every value of
// every other dimension, if the two are allowed together.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/step_profile.hpp"

namespace sluice::testing {

struct ExecutedCase {
  std::string name;         // "llama bf16, stage 3, recompute full, ..."
  EngineOptions options;    // without nvme_path
  std::vector<int> values;  // the index of its value, by dimension
};

// Covers all pairs of values that some valid configuration has. Deterministic.
[[nodiscard]] std::vector<ExecutedCase> executed_cases();
// A subset that contains every value of every dimension.
[[nodiscard]] std::vector<ExecutedCase> sample_of(const std::vector<ExecutedCase>& cases);

}  // namespace sluice::testing
