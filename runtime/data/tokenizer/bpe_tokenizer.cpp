#include "runtime/data/tokenizer/bpe_tokenizer.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <queue>

#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

// Up to this length a scan of all pairs for each merge is cheaper than a heap.
constexpr std::size_t kShortWord = 32;
constexpr std::size_t kCachedWord = 64;         // longer words hardly come twice
constexpr std::size_t kCachedWords = 1U << 16;  // of a few MiB a thread

// Words that this thread has encoded. Words repeat so often that most lookups succeed.
struct WordCache {
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const {
      return std::hash<std::string_view>()(word);
    }
  };
  struct Ids {
    std::size_t first, count;
  };
  std::uint64_t serial = 0;
  std::unordered_map<std::string, Ids, Hash, std::equal_to<>> words;
  std::vector<std::int32_t> ids;

  void use_for(std::uint64_t tokenizer) {
    if (serial == tokenizer && words.size() < kCachedWords) return;
    serial = tokenizer;
    words.clear();
    ids.clear();
  }
};

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
  return slots_[slot_of(pair_key(left, right))].found;
}

BpeTokenizer::BpeTokenizer(BpeModel model) : model_(std::move(model)), merges_(model_.merges) {
  static std::atomic<std::uint64_t> next_serial{1};
  serial_ = next_serial++;
  id_of_byte_.fill(-1);
  for (std::size_t id = 0; id < model_.pieces.size(); ++id) {
    const std::string& piece = model_.pieces[id];
    const auto number = static_cast<std::int32_t>(id);
    if (piece.size() == 1 && id_of_byte_[static_cast<std::uint8_t>(piece[0])] < 0) {
      id_of_byte_[static_cast<std::uint8_t>(piece[0])] = number;
    }
    if (model_.whole_words_first && !piece.empty() && number != model_.end_of_text) {
      whole_words_.emplace(piece, number);
    }
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (id_of_byte_[byte] < 0) {
      throw ConfigError(model_.name + ": byte " + std::to_string(byte) +
                        " has no id; a byte-level vocabulary has all 256");
    }
  }
  for (std::size_t i = 0; i < model_.added.size(); ++i) {
    const std::string& text = model_.added[i].first;
    if (!text.empty()) added_by_byte_[static_cast<std::uint8_t>(text[0])].push_back(i);
  }
  for (auto& candidates : added_by_byte_) {
    std::stable_sort(candidates.begin(), candidates.end(), [&](std::size_t a, std::size_t b) {
      return model_.added[a].first.size() > model_.added[b].first.size();
    });
  }
  for (const std::string& pattern : model_.patterns) add_pattern(pattern);
}

void BpeTokenizer::add_pattern(const std::string& pattern) {
  try {
    patterns_.emplace_back(pattern);
  } catch (const ConfigError& error) {
    throw ConfigError(model_.name + ": " + error.what());
  } catch (const SplitError& error) {
    throw IoError(model_.name + ": " + error.what(), model_.name);
  }
}

std::int64_t BpeTokenizer::vocab_size() const {
  return static_cast<std::int64_t>(model_.pieces.size());
}

std::int64_t BpeTokenizer::added_at(std::string_view text) const {
  for (const std::size_t i : added_by_byte_[static_cast<std::uint8_t>(text[0])]) {
    if (text.starts_with(model_.added[i].first)) return static_cast<std::int64_t>(i);
  }
  return -1;
}

std::vector<std::int32_t> BpeTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3);
  SplitBudget budget(text.size());
  std::size_t plain_from = 0;
  try {
    for (std::size_t i = 0; i < text.size() && !model_.added.empty();) {
      const std::int64_t added = added_at(text.substr(i));
      if (added < 0) {
        ++i;
        continue;
      }
      const auto& [content, id] = nth(model_.added, added);
      encode_plain(text.substr(plain_from, i - plain_from), budget, ids);
      ids.push_back(id);
      plain_from = i += content.size();
    }
    encode_plain(text.substr(plain_from), budget, ids);
  } catch (const SplitError& error) {
    const std::int64_t offset = error.at() - text.data();
    throw TokenizeError(model_.name + ": " + error.what() + " at byte " + std::to_string(offset) +
                            " of the text; take that text out, or mend the pattern",
                        offset);
  }
  return ids;
}

void BpeTokenizer::encode_plain(std::string_view text, SplitBudget& budget,
                                std::vector<std::int32_t>& out) const {
  std::vector<std::string_view> words, finer;
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    if (valid == 0) {  // the pattern is not defined on bytes that are no text: each is a word
      encode_word(text.substr(0, 1), out);
      text.remove_prefix(1);
      continue;
    }
    words.assign(1, text.substr(0, valid));
    for (const SplitPattern& pattern : patterns_) {
      finer.clear();
      for (const std::string_view word : words) pattern.split(word, finer, budget);
      words.swap(finer);
    }
    for (const std::string_view word : words) encode_word(word, out);
    text.remove_prefix(valid);
  }
}

void BpeTokenizer::encode_word(std::string_view word, std::vector<std::int32_t>& out) const {
  if (word.size() == 1) {
    out.push_back(id_of_byte_[static_cast<std::uint8_t>(word[0])]);
    return;
  }
  if (word.size() > kCachedWord) return merge_word(word, out);
  thread_local WordCache cache;
  cache.use_for(serial_);
  if (const auto found = cache.words.find(word); found != cache.words.end()) {
    const auto first = cache.ids.begin() + static_cast<std::ptrdiff_t>(found->second.first);
    out.insert(out.end(), first, first + static_cast<std::ptrdiff_t>(found->second.count));
    return;
  }
  const std::size_t before = out.size();
  merge_word(word, out);
  cache.words.emplace(word, WordCache::Ids{cache.ids.size(), out.size() - before});
  cache.ids.insert(cache.ids.end(), out.begin() + static_cast<std::ptrdiff_t>(before), out.end());
}

void BpeTokenizer::merge_word(std::string_view word, std::vector<std::int32_t>& out) const {
  if (model_.whole_words_first) {
    if (const auto found = whole_words_.find(word); found != whole_words_.end()) {
      out.push_back(found->second);
      return;
    }
  }
  if (word.size() > kShortWord) return merge_long_word(word, out);
  std::array<std::int32_t, kShortWord> ids{};
  std::size_t count = 0;
  for (const char byte : word) ids[count++] = id_of_byte_[static_cast<std::uint8_t>(byte)];
  for (;;) {
    MergeTable::Found best;
    std::size_t best_at = 0;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      const MergeTable::Found found = merges_.find(ids[i], ids[i + 1]);
      if (found.rank >= 0 && (best.rank < 0 || found.rank < best.rank)) {
        best = found;
        best_at = i;
      }
    }
    if (best.rank < 0) break;
    ids[best_at] = best.result;
    std::copy(ids.begin() + best_at + 2, ids.begin() + count, ids.begin() + best_at + 1);
    --count;
  }
  out.insert(out.end(), ids.begin(), ids.begin() + count);
}

// A linked list of symbols and a heap of its mergeable pairs. An entry is stale if its symbols have
// been merged since: their ids differ, and the entry is dropped when popped.
void BpeTokenizer::merge_long_word(std::string_view word, std::vector<std::int32_t>& out) const {
  struct Symbol {
    std::int32_t id;
    std::size_t previous, next;  // word.size(): none
  };
  struct Candidate {
    std::int32_t rank, left, right, result;
    std::size_t at;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  const std::size_t none = word.size();
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (std::size_t i = 0; i < word.size(); ++i) {
    symbols.push_back(
        {id_of_byte_[static_cast<std::uint8_t>(word[i])], i == 0 ? none : i - 1, i + 1});
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto offer = [&](std::size_t at) {
    if (at == none || symbols[at].next == none) return;
    const std::int32_t left = symbols[at].id, right = symbols[symbols[at].next].id;
    const MergeTable::Found found = merges_.find(left, right);
    if (found.rank >= 0) heap.push({found.rank, left, right, found.result, at});
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) offer(i);
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    Symbol& left = symbols[best.at];
    if (left.id != best.left || left.next == none || symbols[left.next].id != best.right) continue;
    symbols[left.next].id = -1;
    left.next = symbols[left.next].next;
    left.id = best.result;
    if (left.next != none) symbols[left.next].previous = best.at;
    offer(left.previous);
    offer(best.at);
  }
  for (std::size_t at = 0; at != none; at = symbols[at].next) out.push_back(symbols[at].id);
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const auto index = static_cast<std::size_t>(id);
    const bool known = id >= 0 && index < model_.pieces.size() && !model_.pieces[index].empty();
    text += known ? model_.pieces[index] : "\xEF\xBF\xBD";
  }
  return text;
}

}  // namespace sluice
