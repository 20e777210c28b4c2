#include "runtime/data/split_plan.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "runtime/data/sample_order.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kSplitKey = 0x53504C4954;  // "SPLIT": any constant would do

void append(std::vector<TokenRange>& ranges, TokenRange range) {
  if (range.begin == range.end) return;
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

}  // namespace

SplitPlan plan_split(std::span<const std::int64_t> document_starts, double train_share,
                     double valid_share) {
  check(!document_starts.empty(), "plan_split: no document positions");
  check(train_share >= 0 && valid_share >= 0 && train_share + valid_share > 0,
        "plan_split: shares below 0 or of no sum");
  const std::int64_t total = document_starts.back();
  const auto documents = static_cast<std::int64_t>(document_starts.size()) - 1;
  const auto wanted = static_cast<std::int64_t>(
      std::llround(static_cast<double>(total) * (valid_share / (train_share + valid_share))));
  std::vector<bool> drawn(static_cast<std::size_t>(documents));
  std::int64_t taken = 0;
  const SampleOrder order(documents, kSplitKey);
  for (std::int64_t i = 0; i < documents && taken < wanted; ++i) {
    const auto document = static_cast<std::size_t>(order.at(0, i));
    const std::int64_t length = document_starts[document + 1] - document_starts[document];
    if (taken + length > wanted) continue;
    drawn[document] = true;
    taken += length;
  }
  SplitPlan plan;
  if (2 * taken < wanted) {
    append(plan.train, {0, total - wanted});
    append(plan.valid, {total - wanted, total});
    return plan;
  }
  for (std::size_t d = 0; d < drawn.size(); ++d) {
    append(drawn[d] ? plan.valid : plan.train, {document_starts[d], document_starts[d + 1]});
  }
  return plan;
}

}  // namespace sluice
