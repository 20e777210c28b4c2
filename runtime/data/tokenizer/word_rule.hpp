// Hand-written splitters for the split patterns of well-known tokenizers. A splitter's words are
// those of SplitPattern; tests compare both over random text.
#pragma once

#include <bit>
#include <cstring>
#include <string_view>

#include "runtime/data/tokenizer/char_class.hpp"

namespace sluice {

// kLlama3 is also cl100k; kQwen2 differs in single digits. kMarked is no pattern: a word ends
// before each U+2581 behind another character.
enum class WordRule { kNone, kGpt2, kLlama3, kQwen2, kO200k, kMarked };

// The rule of a pattern, by its known spellings; kNone for another pattern.
[[nodiscard]] WordRule word_rule_of(std::string_view pattern);

namespace word_rule {

struct Char {
  std::uint8_t kind;
  std::uint8_t bytes;
};

// REQUIRES for all functions: valid UTF-8 from `at` to `end`, and at < end.
inline Char wide_char(const CharClasses& classes, const char* at) {
  const auto byte = [at](int i) {
    return static_cast<std::uint32_t>(static_cast<std::uint8_t>(at[i]));
  };
  const std::uint32_t lead = byte(0);
  if (lead < 0xE0) return {classes.of_code[(lead & 0x1FU) << 6U | (byte(1) & 0x3FU)], 2};
  if (lead < 0xF0) {
    return {classes.of_code[(lead & 0xFU) << 12U | (byte(1) & 0x3FU) << 6U | (byte(2) & 0x3FU)], 3};
  }
  return {classes.of_code[(lead & 7U) << 18U | (byte(1) & 0x3FU) << 12U | (byte(2) & 0x3FU) << 6U |
                          (byte(3) & 0x3FU)],
          4};
}

inline Char char_at(const CharClasses& classes, const char* at) {
  const std::uint8_t kind = classes.of_byte[static_cast<std::uint8_t>(*at)];
  return kind != kWide ? Char{kind, 1} : wide_char(classes, at);
}

// How many of the 8 bytes at `at` come before the first that is no ASCII letter.
inline std::size_t leading_letters(const char* at) {
  constexpr std::uint64_t kEach = 0x0101010101010101U, kHigh = kEach * 0x80U;
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, at, sizeof bytes);  // the first byte is the lowest: little-endian
  const std::uint64_t lower = (bytes | kEach * 0x20U) & ~kHigh;
  const std::uint64_t from_a = lower + kEach * (0x80U - 'a'),
                      after_z = lower + kEach * (0x7FU - 'z');
  const std::uint64_t others = ~(from_a & ~after_z & ~bytes) & kHigh;
  return others == 0 ? 8 : static_cast<std::size_t>(std::countr_zero(others)) / 8;
}

// End of the run of characters that have a bit of `kinds`.
inline const char* run_end(const CharClasses& classes, const char* at, const char* end,
                           unsigned kinds) {
  if ((kinds & kLetter) != 0) {
    while (end - at >= 8) {
      const std::size_t letters = leading_letters(at);
      at += letters;
      if (letters < 8) break;
    }
  }
  while (at < end) {
    const std::uint8_t kind = classes.of_byte[static_cast<std::uint8_t>(*at)];
    if ((kind & kinds) != 0) {
      ++at;
    } else if (kind != kWide) {
      break;
    } else {
      const Char wide = wide_char(classes, at);
      if ((wide.kind & kinds) == 0) break;
      at += wide.bytes;
    }
  }
  return at;
}

inline const char* newlines_end(const char* at, const char* end, bool slashes) {
  while (at < end && (*at == '\r' || *at == '\n' || (slashes && *at == '/'))) ++at;
  return at;
}

// \s+(?!\S)|\s+, after \s*[\r\n]+ if `newlines`.
inline const char* space_end(const CharClasses& classes, const char* at, const char* end,
                             bool newlines) {
  const char* last = at;
  const char* after_newline = nullptr;
  const char* stop = at;
  while (stop < end) {
    const Char next = char_at(classes, stop);
    if ((next.kind & kSpace) == 0) break;
    last = stop;
    stop += next.bytes;
    if ((next.kind & kNewline) != 0) after_newline = stop;
  }
  if (newlines && after_newline != nullptr) return after_newline;
  return stop == end || last == at ? stop : last;
}

// Bytes of '(?:[sdmt]|ll|ve|re) at an apostrophe; 0 if there is none. Without case U+017F is an s.
inline std::size_t contraction(const char* at, const char* end, bool any_case) {
  const auto left = static_cast<std::size_t>(end - at);
  if (left < 2) return 0;
  const auto lower = [&](std::size_t i) {
    return any_case && at[i] >= 'A' && at[i] <= 'Z' ? static_cast<char>(at[i] + 32) : at[i];
  };
  const char first = lower(1);
  if (first == 's' || first == 'd' || first == 'm' || first == 't') return 2;
  if (left < 3) return 0;
  const char second = lower(2);
  if (first == 'l' && second == 'l') return 3;
  if ((first == 'v' || first == 'r') && second == 'e') return 3;
  return any_case && at[1] == '\xC5' && at[2] == '\xBF' ? 3 : 0;
}

inline const char* gpt2_end(const CharClasses& classes, const char* at, const char* end) {
  if (*at == ' ' && at + 1 < end) {
    const Char next = char_at(classes, at + 1);
    if ((next.kind & kSpace) == 0) {
      return run_end(classes, at + 1 + next.bytes, end, next.kind & (kLetter | kNumber | kOther));
    }
  }
  const Char first = char_at(classes, at);
  if ((first.kind & kSpace) != 0) return space_end(classes, at, end, false);
  if (*at == '\'') {
    if (const std::size_t bytes = contraction(at, end, false); bytes > 0) return at + bytes;
  }
  return run_end(classes, at + first.bytes, end, first.kind & (kLetter | kNumber | kOther));
}

inline const char* digits_end(const CharClasses& classes, const char* at, const char* end,
                              int most) {
  for (int i = 0; i < most && at < end; ++i) {
    const Char next = char_at(classes, at);
    if ((next.kind & kNumber) == 0) break;
    at += next.bytes;
  }
  return at;
}

// The alternatives that cl100k and o200k share: digits, other characters, spaces.
inline const char* tail_end(const CharClasses& classes, const char* at, const char* end, int digits,
                            bool slashes) {
  const Char first = char_at(classes, at);
  if ((first.kind & kNumber) != 0) return digits_end(classes, at, end, digits);
  const char* others = at;
  if (*at == ' ' && at + 1 < end && (char_at(classes, at + 1).kind & kOther) != 0) ++others;
  if (others > at || (first.kind & kOther) != 0) {
    return newlines_end(run_end(classes, others, end, kOther), end, slashes);
  }
  return space_end(classes, at, end, true);
}

inline const char* cl100k_end(const CharClasses& classes, const char* at, const char* end,
                              int digits) {
  if (*at == '\'') {
    if (const std::size_t bytes = contraction(at, end, true); bytes > 0) return at + bytes;
  }
  const Char first = char_at(classes, at);
  const char* next = at + first.bytes;
  if ((first.kind & kLetter) != 0) return run_end(classes, next, end, kLetter);
  if ((first.kind & (kNumber | kNewline)) == 0 && next < end) {
    const Char second = char_at(classes, next);
    if ((second.kind & kLetter) != 0) {
      return run_end(classes, next + second.bytes, end, kLetter);
    }
  }
  return tail_end(classes, at, end, digits, false);
}

inline constexpr std::string_view kMark = "\xE2\x96\x81";

inline const char* marked_end(const char* at, const char* end) {
  const std::string_view text(at, static_cast<std::size_t>(end - at));
  std::size_t from = 0;
  while (text.substr(from).starts_with(kMark)) from += kMark.size();
  const std::size_t next = text.find(kMark, from);
  return next == std::string_view::npos ? end : at + next;
}

[[nodiscard]] const char* o200k_end(const CharClasses& classes, const char* at, const char* end);

}  // namespace word_rule

// End of the word that begins at `at`. REQUIRES: a rule other than kNone, valid UTF-8, at < end.
template <WordRule rule>
[[nodiscard]] const char* word_end(const CharClasses& classes, const char* at, const char* end) {
  if constexpr (rule == WordRule::kGpt2) return word_rule::gpt2_end(classes, at, end);
  if constexpr (rule == WordRule::kLlama3) return word_rule::cl100k_end(classes, at, end, 3);
  if constexpr (rule == WordRule::kQwen2) return word_rule::cl100k_end(classes, at, end, 1);
  if constexpr (rule == WordRule::kMarked) return word_rule::marked_end(at, end);
  return word_rule::o200k_end(classes, at, end);
}

// Calls visit(word) for the words of `text` in order.
template <WordRule rule, typename Visit>
void for_each_word(std::string_view text, Visit&& visit) {
  const CharClasses& classes = char_classes();
  const char* at = text.data();
  for (const char* const end = at + text.size(); at < end;) {
    const char* const stop = word_end<rule>(classes, at, end);
    visit(std::string_view(at, static_cast<std::size_t>(stop - at)));
    at = stop;
  }
}

// The same with a rule that is known at run time.
template <typename Visit>
void for_each_word(WordRule rule, std::string_view text, Visit&& visit) {
  switch (rule) {
    case WordRule::kGpt2:
      return for_each_word<WordRule::kGpt2>(text, visit);
    case WordRule::kLlama3:
      return for_each_word<WordRule::kLlama3>(text, visit);
    case WordRule::kQwen2:
      return for_each_word<WordRule::kQwen2>(text, visit);
    case WordRule::kO200k:
      return for_each_word<WordRule::kO200k>(text, visit);
    case WordRule::kMarked:
      return for_each_word<WordRule::kMarked>(text, visit);
    case WordRule::kNone:
      break;
  }
}

}  // namespace sluice
