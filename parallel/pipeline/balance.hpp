// Assignment of units to pipeline stages. Pure; thread-safe.
#pragma once

#include <span>
#include <vector>

namespace sluice {

// Cuts the model's units (embedding, blocks, loss head) into `parts` consecutive parts of at least
// one unit. Returns for each part the index one past its last unit. The cut minimises the cost of
// the largest part; among such cuts it minimises the sum of squares. `costs`: one value >= 0 per
// unit, in any unit of measure. Throws ConfigError if there are more parts than units. O(parts x
// units^2).
[[nodiscard]] std::vector<int> balance_stages(std::span<const double> costs, int parts);

// Returns the same kind of cut from the number of blocks of each part. The embedding belongs to the
// first part, the loss head to the last. Throws ConfigError, which shows the equation, unless
// `blocks` has `parts` values of at least 1 with the sum `layers`.
[[nodiscard]] std::vector<int> given_stages(std::span<const int> blocks, int parts, int layers);

}  // namespace sluice
