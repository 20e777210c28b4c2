// Rules of the `parallel:` section: conditions of a mesh on the model and on other sections. The
// number of ranks is validate()'s. Rules of train.matmul as well, because 8-bit products need sizes
// that depend on the mesh. Pure; thread-safe.
#pragma once

#include <vector>

#include "configs/offload_rules.hpp"

namespace sluice {

// An unknown vocabulary (0) breaks no rule.
[[nodiscard]] std::vector<BrokenRule> broken_parallel_rules(const RunConfig& run);
// Conditions of fp32 and 8-bit matrix products on the model, the mesh and train.dtype.
[[nodiscard]] std::vector<BrokenRule> broken_matmul_rules(const RunConfig& run);

}  // namespace sluice
