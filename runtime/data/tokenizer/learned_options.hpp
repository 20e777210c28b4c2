// The value `bpe:N` of data.tokenizer: a byte-level BPE vocabulary of N ids, learned from the
// training text at its first use (learned_tokenizer.hpp).
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace sluice {

inline constexpr std::string_view kLearnedPrefix = "bpe:";
inline constexpr std::int64_t kFewestLearnedIds = 257, kMostLearnedIds = 1 << 20;
[[nodiscard]] inline bool is_learned_tokenizer(std::string_view spec) {
  return spec.starts_with(kLearnedPrefix);
}
// N of `bpe:N`. nullopt: another spec, or no number from kFewestLearnedIds to kMostLearnedIds.
[[nodiscard]] inline std::optional<std::int64_t> learned_vocab(std::string_view spec) {
  if (!is_learned_tokenizer(spec)) return std::nullopt;
  std::int64_t ids = 0;
  const char* const end = spec.data() + spec.size();
  const auto parsed = std::from_chars(spec.data() + kLearnedPrefix.size(), end, ids);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == end;
  if (!whole || ids < kFewestLearnedIds || ids > kMostLearnedIds) return std::nullopt;
  return ids;
}

}  // namespace sluice
