// Rules of the `parallel:` section: what a mesh asks of the model and of the other sections, beside
// the number of its ranks. Pure; thread-safe.
#pragma once

#include <vector>

#include "configs/offload_rules.hpp"

namespace sluice {

// A vocabulary that is not known yet (0) breaks no rule.
[[nodiscard]] std::vector<BrokenRule> broken_parallel_rules(const RunConfig& run);

}  // namespace sluice
