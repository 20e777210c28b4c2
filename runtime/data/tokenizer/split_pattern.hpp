// Regular expressions that cut text into words; BPE merges inside words.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "runtime/data/tokenizer/word_rule.hpp"

namespace sluice {

// A text that a pattern cannot split within its limits. `at` points into the text.
class SplitError : public Error {
 public:
  SplitError(const std::string& message, const char* at) : Error(message), at_(at) {}
  [[nodiscard]] int exit_code() const override { return 4; }
  [[nodiscard]] const char* at() const { return at_; }

 private:
  const char* at_;
};

// CPU time that the calling thread may spend on one text: a hundred times the cost of the usual
// patterns. A single match has a limit of its own; this limit ends a text of many slow matches. Not
// thread-safe.
class SplitBudget {
 public:
  explicit SplitBudget(std::size_t text_bytes);
  // REQUIRES: called after each match. False: the time is spent.
  [[nodiscard]] bool match();

 private:
  double most_seconds_;
  double started_ = -1, checked_ = 0;  // CPU seconds of the thread
  int interval_ = 1, left_ = 1;        // matches from one look at the clock to the next
};

struct SplitPart {
  std::string_view text;
  bool is_match = false;  // else a gap between matches
};

// One compiled pattern (PCRE2 with Unicode properties; JIT if the library supports it). `\s` is
// exactly Unicode's White_Space, as in the engines that these patterns were written for.
// Thread-safe.
class SplitPattern {
 public:
  // Throws ConfigError if the pattern does not compile, SplitError if it needs exponential time on
  // a short text.
  explicit SplitPattern(const std::string& pattern);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;

  // The hand-written splitter of the same words; kNone for other patterns.
  [[nodiscard]] WordRule rule() const { return rule_; }
  // Appends the matches and the gaps between them in order; together they are `text`. REQUIRES:
  // valid UTF-8. Throws SplitError if a match exceeds the steps or memory that are linear in the
  // text, or if `budget` is spent.
  void split(std::string_view text, std::vector<std::string_view>& out, SplitBudget& budget) const;
  void split(std::string_view text, std::vector<std::string_view>& out) const {
    SplitBudget budget(text.size());
    split(text, out, budget);
  }
  // The same, told apart. Always by PCRE2.
  void parts(std::string_view text, std::vector<SplitPart>& out, SplitBudget& budget) const;

 private:
  void check_speed() const;
  [[noreturn]] void fail(const std::string& why, const char* at) const;

  struct Impl;
  WordRule rule_ = WordRule::kNone;
  std::unique_ptr<Impl> impl_;
};

extern const char* const kGpt2Pattern;    // GPT-2, r50k, p50k
extern const char* const kCl100kPattern;  // GPT-4; Llama 3 and Qwen 2 differ only in digits
extern const char* const kO200kPattern;   // GPT-4o

}  // namespace sluice
