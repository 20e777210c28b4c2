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

enum class Owner : std::uint8_t { kTrain, kValid, kTest };

// Gives documents to `owner` until it has `wanted` tokens. Returns how many it has.
std::int64_t draw(std::span<const std::int64_t> starts, std::int64_t wanted, Owner owner,
                  std::vector<Owner>& owners) {
  const auto documents = static_cast<std::int64_t>(owners.size());
  const SampleOrder order(documents, kSplitKey);
  std::int64_t taken = 0;
  for (std::int64_t i = 0; i < documents && taken < wanted; ++i) {
    const auto document = static_cast<std::size_t>(order.at(0, i));
    const std::int64_t length = starts[document + 1] - starts[document];
    if (owners[document] != Owner::kTrain || taken + length > wanted) continue;
    owners[document] = owner;
    taken += length;
  }
  return taken;
}

// Gives the first document of the order that trains to an owner that has none. The last documents
// stay in training.
void give_one(Owner owner, std::vector<Owner>& owners) {
  const auto documents = static_cast<std::int64_t>(owners.size());
  const SampleOrder order(documents, kSplitKey);
  if (std::count(owners.begin(), owners.end(), Owner::kTrain) < 2) return;
  if (std::count(owners.begin(), owners.end(), owner) > 0) return;
  for (std::int64_t i = 0; i < documents; ++i) {
    Owner& of_document = owners[static_cast<std::size_t>(order.at(0, i))];
    if (of_document != Owner::kTrain) continue;
    of_document = owner;
    return;
  }
}

}  // namespace

SplitPlan plan_split(std::span<const std::int64_t> document_starts, const SplitShares& shares) {
  check(!document_starts.empty(), "plan_split: no document positions");
  const double sum = shares.train + shares.valid + shares.test;
  check(shares.train >= 0 && shares.valid >= 0 && shares.test >= 0 && sum > 0,
        "plan_split: shares below 0 or of no sum");
  const std::int64_t total = document_starts.back();
  const auto tokens_of = [&](double share) {
    return static_cast<std::int64_t>(std::llround(static_cast<double>(total) * (share / sum)));
  };
  const std::int64_t valid = tokens_of(shares.valid);
  const std::int64_t test = std::min(tokens_of(shares.test), total - valid);
  std::vector<Owner> owners(document_starts.size() - 1, Owner::kTrain);
  const std::int64_t valid_drawn = draw(document_starts, valid, Owner::kValid, owners);
  const std::int64_t test_drawn = draw(document_starts, test, Owner::kTest, owners);
  const bool enough = 2 * valid_drawn >= valid && 2 * test_drawn >= test;
  if (shares.whole_documents) {
    if (valid > 0) give_one(Owner::kValid, owners);
    if (test > 0) give_one(Owner::kTest, owners);
  }
  SplitPlan plan;
  if (!enough && !shares.whole_documents) {
    append(plan.train, {0, total - valid - test});
    append(plan.valid, {total - valid - test, total - test});
    append(plan.test, {total - test, total});
    return plan;
  }
  for (std::size_t d = 0; d < owners.size(); ++d) {
    std::vector<TokenRange>& of_owner = owners[d] == Owner::kTrain   ? plan.train
                                        : owners[d] == Owner::kValid ? plan.valid
                                                                     : plan.test;
    append(of_owner, {document_starts[d], document_starts[d + 1]});
  }
  return plan;
}

}  // namespace sluice
