// Which units a pipeline stage has. Pure; thread-safe.
#pragma once

#include <span>
#include <vector>

namespace sluice {

// Cuts the model's units (embedding, blocks, loss head) into `parts` runs of at least one unit: by
// part, one past its last unit. The largest part costs as little as it can; of such cuts, the one
// with the smallest sum of squares. `costs`: by unit, >= 0, of any scale. Throws ConfigError where
// there are more parts than units. O(parts x units^2).
[[nodiscard]] std::vector<int> balance_stages(std::span<const double> costs, int parts);

// The same from blocks that were given, by part: the embedding is with the first, the loss head
// with the last. Throws ConfigError, with the equation, unless there are as many as parts, all at
// least 1, with the sum `layers`.
[[nodiscard]] std::vector<int> given_stages(std::span<const int> blocks, int parts, int layers);

}  // namespace sluice
