#include "runtime/data/tokenizer/word_rule.hpp"

#include "runtime/data/tokenizer/split_pattern.hpp"

namespace sluice {
namespace word_rule {
namespace {

// End of H*T+ from `at` (H: kHead, T: kTail); nullptr: no match. H* gives back characters until T+
// has one.
const char* tailed_end(const CharClasses& classes, const char* at, const char* end) {
  const char* after_tail = nullptr;
  while (at < end) {
    const Char next = char_at(classes, at);
    if ((next.kind & kHead) == 0) {
      return (next.kind & kTail) != 0 ? run_end(classes, at, end, kTail) : after_tail;
    }
    at += next.bytes;
    if ((next.kind & kTail) != 0) after_tail = at;
  }
  return after_tail;
}

const char* headed_end(const CharClasses& classes, const char* at, const char* end) {
  const char* const stop = run_end(classes, at, end, kHead);
  return stop > at ? stop : nullptr;
}

}  // namespace

const char* o200k_end(const CharClasses& classes, const char* at, const char* end) {
  const Char first = char_at(classes, at);
  const bool prefix = (first.kind & (kLetter | kNumber | kNewline)) == 0;
  const char* const next = at + first.bytes;
  const char* stop = prefix ? tailed_end(classes, next, end) : nullptr;
  if (stop == nullptr) stop = tailed_end(classes, at, end);
  if (stop == nullptr && prefix) stop = headed_end(classes, next, end);
  if (stop == nullptr) stop = headed_end(classes, at, end);
  if (stop == nullptr) return tail_end(classes, at, end, 3, true);
  return stop < end && *stop == '\'' ? stop + contraction(stop, end, true) : stop;
}

}  // namespace word_rule

WordRule word_rule_of(std::string_view pattern) {
  constexpr std::string_view kGpt2Spelt =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  constexpr std::string_view kLlama3Spelt =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
      R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
  constexpr std::string_view kQwen2Spelt =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
      R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
  if (pattern == kGpt2Pattern || pattern == kGpt2Spelt) return WordRule::kGpt2;
  if (pattern == kCl100kPattern || pattern == kLlama3Spelt) return WordRule::kLlama3;
  if (pattern == kQwen2Spelt) return WordRule::kQwen2;
  if (pattern == kO200kPattern) return WordRule::kO200k;
  return WordRule::kNone;
}

}  // namespace sluice
