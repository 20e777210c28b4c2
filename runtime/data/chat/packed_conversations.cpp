#include "runtime/data/chat/packed_conversations.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"

namespace sluice {
namespace {

// Conversations that are packed at a time. Rows do not cross a slice, so the planner's memory is
// that of a slice.
constexpr std::size_t kSlice = std::size_t{1} << 18U;

std::vector<std::uint32_t> conversations_in(const ConversationCache& cache,
                                            const std::vector<TokenRange>& ranges) {
  const auto starts = cache.document_starts();
  check(starts.size() <= UINT32_MAX, "more than 2^32 conversations in one part of data.sft");
  std::vector<std::uint32_t> conversations;
  for (const TokenRange& range : ranges) {
    auto at = std::lower_bound(starts.begin(), starts.end(), range.begin);
    for (; at + 1 < starts.end() && at[1] <= range.end; ++at) {
      conversations.push_back(static_cast<std::uint32_t>(at - starts.begin()));
    }
  }
  return conversations;
}

// The places of some conversations, for people.
class Places {
 public:
  void add(const std::string& place) {
    if (++count_ <= kShownPlaces) text_ += (text_.empty() ? "" : "; ") + place;
  }
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::string text() const { return text_ + (count_ > kShownPlaces ? "; ..." : ""); }

 private:
  std::int64_t count_ = 0;
  std::string text_;
};

std::string some_of(std::int64_t count, std::size_t all, const char* one, const char* several) {
  return std::to_string(count) + " of " + std::to_string(all) + " conversations " +
         (count == 1 ? one : several);
}

}  // namespace

PackedConversations::PackedConversations(std::shared_ptr<const ConversationCache> cache,
                                         const std::vector<TokenRange>& ranges, std::int64_t seq,
                                         Truncation truncation)
    : cache_(std::move(cache)), seq_(seq) {
  std::vector<std::uint32_t> conversations = conversations_in(*cache_, ranges);
  tell_too_long(conversations, truncation);
  leave_out_unlearned(conversations, truncation);
  pack(conversations, truncation);
}

std::int64_t PackedConversations::length(std::int64_t conversation) const {
  const auto starts = cache_->document_starts();
  const auto index = static_cast<std::size_t>(conversation);
  return starts[index + 1] - starts[index];
}

void PackedConversations::tell_too_long(const std::vector<std::uint32_t>& conversations,
                                        Truncation truncation) {
  Places places;
  for (const std::uint32_t conversation : conversations) {
    const std::int64_t tokens = length(conversation);
    if (tokens <= seq_) continue;
    places.add(cache_->place(conversation) + " (" + std::to_string(tokens) + " tokens)");
  }
  if (places.count() == 0) return;
  const bool one = places.count() == 1;
  const std::string fate = truncation == Truncation::kCut ? one ? " and is cut" : " and are cut"
                           : truncation == Truncation::kDrop
                               ? one ? " and is left out" : " and are left out"
                               : "";
  too_long_ = some_of(places.count(), conversations.size(), "is", "are") +
              " longer than model.seq (" + std::to_string(seq_) + ")" + fate + ": " + places.text();
  if (truncation == Truncation::kError) {
    throw ConfigError(too_long_ + "; raise model.seq, or set data.truncate to drop or cut");
  }
}

void PackedConversations::leave_out_unlearned(std::vector<std::uint32_t>& conversations,
                                              Truncation truncation) {
  const std::size_t all = conversations.size();
  Places places;
  std::erase_if(conversations, [&](std::uint32_t conversation) {
    const bool dropped = length(conversation) > seq_ && truncation == Truncation::kDrop;
    if (dropped || learned_of(conversation) > 0) return false;
    places.add(cache_->place(conversation));
    return true;
  });
  if (places.count() == 0) return;
  unlearned_ = some_of(places.count(), all, "has", "have") +
               " no learned token within model.seq (" + std::to_string(seq_) + ") and " +
               (places.count() == 1 ? "is" : "are") + " left out: " + places.text();
}

void PackedConversations::pack(const std::vector<std::uint32_t>& conversations,
                               Truncation truncation) {
  for (std::size_t first = 0; first < conversations.size(); first += kSlice) {
    const std::size_t count = std::min(kSlice, conversations.size() - first);
    std::vector<std::int64_t> lengths;
    for (std::size_t i = 0; i < count; ++i) lengths.push_back(length(conversations[first + i]));
    const PackingPlan plan = plan_packing(lengths, {.seq = seq_, .truncation = truncation});
    for (const PackedRow& row : plan.rows) {
      for (const PackedPart& part : row.parts) {
        conversations_.push_back(conversations[first + static_cast<std::size_t>(part.document)]);
      }
      row_starts_.push_back(static_cast<std::int64_t>(conversations_.size()));
    }
    counts_.add(plan.counts);
  }
}

std::span<const std::uint32_t> PackedConversations::row(std::int64_t sample) const {
  const auto index = static_cast<std::size_t>(sample);
  const auto begin = static_cast<std::size_t>(row_starts_[index]);
  return std::span(conversations_)
      .subspan(begin, static_cast<std::size_t>(row_starts_[index + 1]) - begin);
}

std::int64_t PackedConversations::read(std::int64_t sample, const SampleRow& out) const {
  const auto starts = cache_->document_starts();
  std::fill(out.tokens.begin(), out.tokens.end(), 0);
  std::fill(out.targets.begin(), out.targets.end(), kIgnoreTarget);
  if (out.ends != nullptr) out.ends->assign(1, 0);
  std::size_t end = 0;
  for (const std::uint32_t conversation : row(sample)) {
    const std::size_t begin = end;
    end += static_cast<std::size_t>(std::min(length(conversation), seq_));
    cache_->read(starts[conversation], out.tokens.subspan(begin, end - begin));
    for (std::size_t i = begin; i < end; ++i) {
      std::int64_t& word = out.tokens[i];
      const bool learned = (word & kLearnedBit) != 0;
      word &= kLearnedBit - 1;
      if (learned && i > begin) out.targets[i - 1] = word;
    }
    if (out.ends != nullptr) out.ends->push_back(static_cast<std::int32_t>(end));
  }
  if (out.ends != nullptr && end < out.tokens.size()) {
    out.ends->push_back(static_cast<std::int32_t>(seq_));
  }
  return starts[row(sample).front()];
}

std::int64_t PackedConversations::learned_of(std::uint32_t conversation) const {
  if (length(conversation) <= seq_) return cache_->records()[conversation].learned;
  std::vector<std::int64_t> words(static_cast<std::size_t>(seq_));
  cache_->read(cache_->document_starts()[conversation], words);
  return std::count_if(words.begin() + 1, words.end(),
                       [](std::int64_t word) { return (word & kLearnedBit) != 0; });
}

std::int64_t PackedConversations::learned(std::int64_t sample) const {
  std::int64_t sum = 0;
  for (const std::uint32_t conversation : row(sample)) sum += learned_of(conversation);
  return sum;
}

}  // namespace sluice
