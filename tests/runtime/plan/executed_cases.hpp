// Configurations that a plan is compared with a run of: every value of every dimension, and with
// every value of another one beside it, wherever the two can stand together.
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

// Covers all pairs of values that some valid configuration has. The same list every time.
[[nodiscard]] std::vector<ExecutedCase> executed_cases();
// Of those, so many that every value of every dimension is there.
[[nodiscard]] std::vector<ExecutedCase> sample_of(const std::vector<ExecutedCase>& cases);

}  // namespace sluice::testing
