#include "runtime/data/tokenizer/model/merge_table.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>

namespace sluice {
namespace {

// Up to this length a scan of all ranks for each merge is cheaper than a heap.
constexpr std::size_t kShortWord = 48;

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32U | static_cast<std::uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(const std::vector<BpeMerge>& merges)
    : slots_(std::bit_ceil(std::max<std::size_t>(merges.size() * 2, 2))),
      shift_(64U - static_cast<unsigned>(std::countr_zero(slots_.size()))) {
  for (const BpeMerge& merge : merges) {
    const std::uint64_t key = pair_key(merge.left, merge.right);
    Slot& slot = slots_[slot_of(key)];
    if (slot.key == kFree || merge.rank < slot.found.rank) {
      slot = {key, {merge.rank, merge.result}};
    }
  }
}

// The slot of `key`, or the free slot for it: at most half the slots are used.
std::size_t MergeTable::slot_of(std::uint64_t key) const {
  std::size_t slot = (key * 0x9E3779B97F4A7C15U) >> shift_;
  while (slots_[slot].key != kFree && slots_[slot].key != key)
    slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

MergeTable::Found MergeTable::find(std::int32_t left, std::int32_t right) const {
  if (left < 0 || right < 0) return {};
  return slots_[slot_of(pair_key(left, right))].found;
}

std::size_t MergeTable::merge(std::span<std::int32_t> symbols) const {
  return symbols.size() <= kShortWord ? merge_short(symbols) : merge_long(symbols);
}

// pairs[i] is the merge of symbols i and i + 1. A merge changes only its neighbours' pairs.
std::size_t MergeTable::merge_short(std::span<std::int32_t> symbols) const {
  std::array<Found, kShortWord> pairs;
  std::size_t count = symbols.size();
  for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == kNone) break;
    symbols[best] = pairs[best].result;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i - 1] = pairs[i];
    }
    if (best + 1 < count) pairs[best] = find(symbols[best], symbols[best + 1]);
    if (best > 0) pairs[best - 1] = find(symbols[best - 1], symbols[best]);
  }
  return count;
}

// A linked list of symbols and a heap of its mergeable pairs. An entry is stale if its symbols have
// been merged since: their ids differ, and the entry is dropped when popped.
std::size_t MergeTable::merge_long(std::span<std::int32_t> symbols) const {
  struct Candidate {
    std::int32_t rank, left, right, result;
    std::size_t at;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  constexpr std::int32_t kMerged = -1;  // by its left neighbour
  const std::size_t none = symbols.size();
  std::vector<std::size_t> previous(none), next(none);
  for (std::size_t i = 0; i < none; ++i) {
    previous[i] = i == 0 ? none : i - 1;
    next[i] = i + 1;
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto offer = [&](std::size_t at) {
    if (at == none || next[at] == none) return;
    const Found found = find(symbols[at], symbols[next[at]]);
    if (found.rank == kNone) return;
    heap.push({found.rank, symbols[at], symbols[next[at]], found.result, at});
  };
  std::vector<bool> merged(none);
  for (std::size_t i = 0; i < none; ++i) offer(i);
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    const std::size_t right = next[best.at];
    if (symbols[best.at] != best.left || right == none || symbols[right] != best.right) continue;
    symbols[right] = kMerged;
    merged[right] = true;
    next[best.at] = next[right];
    symbols[best.at] = best.result;
    if (next[best.at] != none) previous[next[best.at]] = best.at;
    offer(previous[best.at]);
    offer(best.at);
  }
  std::size_t count = 0;
  for (std::size_t at = 0; at < none; ++at) {
    if (!merged[at]) symbols[count++] = symbols[at];
  }
  return count;
}

}  // namespace sluice
