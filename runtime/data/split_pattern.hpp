// The regular expressions that cut text into words before BPE merges inside them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// One compiled pattern (PCRE2 with Unicode properties, JIT where the library has it). `\s` is
// exactly Unicode's White_Space, as in the engines these patterns were written for. Thread-safe.
class SplitPattern {
 public:
  explicit SplitPattern(
      const std::string& pattern);  // throws ConfigError where it does not compile
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;

  // Appends the matches and the gaps between them, in order: together they are `text`. REQUIRES:
  // valid UTF-8. Throws Error where the matcher runs out of its limits.
  void split(std::string_view text, std::vector<std::string_view>& out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

extern const char* const kGpt2Pattern;    // GPT-2, r50k, p50k
extern const char* const kCl100kPattern;  // GPT-4; Llama 3 and Qwen 2 differ only in digits
extern const char* const kO200kPattern;   // GPT-4o

}  // namespace sluice
