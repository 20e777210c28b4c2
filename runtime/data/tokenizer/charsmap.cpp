#include "runtime/data/tokenizer/charsmap.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace sluice {
namespace {

// Fields of a unit of the Darts-clone library.
std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10U) << ((unit & (1U << 9U)) >> 6U); }
std::uint32_t label_of(std::uint32_t unit) { return unit & ((1U << 31U) | 0xFFU); }
bool has_leaf(std::uint32_t unit) { return (unit >> 8U & 1U) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & ((1U << 31U) - 1); }

}  // namespace

Charsmap::Charsmap(const std::string& path, std::string_view blob) {
  std::uint32_t trie_bytes = 0;
  const bool sized = blob.size() >= sizeof trie_bytes;
  if (sized) std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
  if (!sized || trie_bytes > blob.size() - sizeof trie_bytes ||
      trie_bytes % sizeof(std::uint32_t) != 0) {
    throw IoError(path + ": the precompiled table of characters has " +
                      std::to_string(blob.size()) + " bytes, and its trie is said to have " +
                      std::to_string(trie_bytes) + "; the file is damaged",
                  path);
  }
  units_.resize(trie_bytes / sizeof(std::uint32_t));
  std::memcpy(units_.data(), blob.data() + sizeof trie_bytes, trie_bytes);
  strings_ = blob.substr(sizeof trie_bytes + trie_bytes);
}

Charsmap::Match Charsmap::match(std::string_view text, bool longest) const {
  Match found;
  if (units_.empty()) return found;
  std::size_t node = offset_of(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (node >= units_.size()) break;
    if (!has_leaf(unit)) continue;
    const std::size_t first = std::min<std::size_t>(value_of(units_[node]), strings_.size());
    const std::size_t end = std::min(strings_.find('\0', first), strings_.size());
    found = {i + 1, std::string_view(strings_).substr(first, end - first)};
    if (!longest) break;
  }
  return found;
}

}  // namespace sluice
