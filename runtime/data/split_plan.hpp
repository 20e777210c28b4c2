// Divides the tokens into training, validation and test. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/data/token_source.hpp"

namespace sluice {

struct SplitPlan {
  std::vector<TokenRange> train, valid, test;  // rising, disjoint, together everything; neighbours
                                               // joined
};

struct SplitShares {  // of any sum > 0; a share of 0 gives an empty part
  double train = 0, valid = 0, test = 0;
  bool whole_documents = false;  // no document is cut
};

// Draws whole documents, in an order that depends only on their number, until validation has its
// share of the tokens, then the next ones for the test set. So all parts hold the same kinds of
// text, although files are sorted by kind. A document that would exceed a share is skipped. If less
// than half of a share is reached (one document, or a few large ones), validation and test are cut
// off the end of the token stream instead. With whole_documents they then have what was drawn, and
// one document at least where there are enough.
[[nodiscard]] SplitPlan plan_split(std::span<const std::int64_t> document_starts,
                                   const SplitShares& shares);

}  // namespace sluice
