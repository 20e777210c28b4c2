// Ids of the words that a thread has encoded. Words repeat so often that most lookups succeed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace sluice {

// The ids of words with more ids than a slot holds, such as runs of spaces.
class SpilledIds {
 public:
  [[nodiscard]] bool has_room(std::size_t count) const { return ids_.size() + count <= kMost; }
  [[nodiscard]] std::int32_t add(std::span<const std::int32_t> ids) {
    const auto place = static_cast<std::int32_t>(ids_.size());
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    return place;
  }
  [[nodiscard]] std::span<const std::int32_t> at(std::int32_t place, std::uint32_t count) const {
    return std::span(ids_).subspan(static_cast<std::size_t>(place), count);
  }
  void clear() { ids_.clear(); }

 private:
  static constexpr std::size_t kMost = 1U << 18U;  // 1 MiB
  std::vector<std::int32_t> ids_;
};

// A table of constant size. A word has a pair of slots, and takes the place of the older word. Not
// thread-safe.
template <std::size_t kWords64, std::size_t kIds, std::size_t kSlots>
class WordCache {
  static_assert((kSlots & (kSlots - 1)) == 0);

 public:
  static constexpr std::size_t kMostBytes = kWords64 * 8 - 1;

  // The word's bytes, zeros, and its length in the last byte.
  struct Key {
    std::uint64_t words[kWords64] = {};
    bool operator==(const Key&) const = default;
  };
  struct Slot {
    Key key;                      // all zeros: free
    std::int32_t ids[kIds] = {};  // of more ids: the place in Spilled
    std::uint32_t count = 0;
  };

  // REQUIRES: 0 < word.size() <= kMostBytes; bytes up to `readable` may be read.
  [[nodiscard]] static Key key_of(std::string_view word, const char* readable) {
    Key key;
    const char* const begin = word.data();
    if (readable - begin >= static_cast<std::ptrdiff_t>(sizeof key)) {
      std::memcpy(key.words, begin, sizeof key);
      for (std::size_t i = 0; i < kWords64; ++i) key.words[i] &= kept_bits(word.size(), i);
    } else {
      std::memcpy(key.words, begin, word.size());
    }
    key.words[kWords64 - 1] |= std::uint64_t{word.size()} << 56U;
    return key;
  }
  // The two slots that may hold a key; fetched into the processor's cache meanwhile.
  [[nodiscard]] Slot* pair_of(const Key& key) const {
    std::uint64_t hash = 0;
    for (const std::uint64_t word : key.words) {
      hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 32U;
    }
    Slot* const pair = &slots_[hash & (kSlots - 2)];
    __builtin_prefetch(pair);
    return pair;
  }
  // nullptr: not held.
  [[nodiscard]] static const Slot* find(const Slot* pair, const Key& key) {
    return pair[0].key == key ? pair : pair[1].key == key ? pair + 1 : nullptr;
  }
  [[nodiscard]] static bool fits(std::size_t ids) { return ids <= kIds; }
  // REQUIRES: !find(pair, key), and fits(ids.size()) or spilled.has_room(ids.size()).
  static void add(Slot* pair, const Key& key, std::span<const std::int32_t> ids,
                  SpilledIds& spilled) {
    pair[1] = pair[0];
    pair[0].key = key;
    pair[0].count = static_cast<std::uint32_t>(ids.size());
    if (fits(ids.size())) {
      std::copy(ids.begin(), ids.end(), pair[0].ids);
    } else {
      pair[0].ids[0] = spilled.add(ids);
    }
  }
  void forget() { std::fill_n(slots_.get(), kSlots, Slot{}); }
  // Forgets all words, and returns true, if the last call was for another owner.
  bool use_for(std::uint64_t owner) {
    if (owner_ == owner) return false;
    owner_ = owner;
    slots_ = std::make_unique<Slot[]>(kSlots);
    return true;
  }

 private:
  // Mask of the i-th 8 bytes that belong to a word of `size` bytes, little-endian.
  [[nodiscard]] static std::uint64_t kept_bits(std::size_t size, std::size_t i) {
    if (size <= i * 8) return 0;
    const std::size_t bytes = size - i * 8;
    return bytes >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (bytes * 8)) - 1;
  }

  std::uint64_t owner_ = 0;
  std::unique_ptr<Slot[]> slots_;
};

}  // namespace sluice
