// Which part of the tokens trains and which part is kept for validation. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/data/token_source.hpp"

namespace sluice {

struct SplitPlan {
  std::vector<TokenRange> train, valid;  // rising, disjoint, together everything; neighbours joined
};

// Whole documents are drawn, in an order that depends on their number alone, until validation has
// its share of the tokens: so both parts are of the same kind of text even where the files are
// sorted by kind. A document that would overshoot the share is passed over. Where that leaves less
// than half of the share (one document, or a few large ones), the end of the token stream is cut
// off instead. The shares are of any sum > 0; a share of 0 gives an empty part.
[[nodiscard]] SplitPlan plan_split(std::span<const std::int64_t> document_starts,
                                   double train_share, double valid_share);

}  // namespace sluice
