// Rules of the `parallel:` section: conditions of a mesh on the model and on other sections, apart
// from the number of ranks. Pure; thread-safe.
#pragma once

#include <vector>

#include "configs/offload_rules.hpp"

namespace sluice {

// An unknown vocabulary (0) breaks no rule.
[[nodiscard]] std::vector<BrokenRule> broken_parallel_rules(const RunConfig& run);

}  // namespace sluice
