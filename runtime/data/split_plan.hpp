// Divides the tokens into training and validation. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/data/token_source.hpp"

namespace sluice {

struct SplitPlan {
  std::vector<TokenRange> train, valid;  // rising, disjoint, together everything; neighbours joined
};

// Draws whole documents, in an order that depends only on their number, until validation has its
// share of the tokens. So both parts hold the same kinds of text, although files are sorted by
// kind. A document that would exceed the share is skipped. If less than half of the share is
// reached (one document, or a few large ones), the end of the token stream is cut off instead. The
// shares may have any sum > 0; a share of 0 gives an empty part.
[[nodiscard]] SplitPlan plan_split(std::span<const std::int64_t> document_starts,
                                   double train_share, double valid_share);

}  // namespace sluice
