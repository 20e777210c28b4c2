// Changes of a text before it is cut into words.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/data/tokenizer/charsmap.hpp"
#include "runtime/data/tokenizer/split_pattern.hpp"

namespace sluice {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // `continued`: other text lies before, so nothing is put before it or stripped from its start.
  // REQUIRES: valid UTF-8. Throws SplitError. Thread-safe.
  [[nodiscard]] virtual std::string apply(std::string text, bool continued,
                                          SplitBudget& budget) const = 0;
};

using NormalizerPtr = std::unique_ptr<NormalizerStep>;

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };
// The text in that form. REQUIRES: valid UTF-8.
[[nodiscard]] std::string in_form(std::string text, UnicodeForm form);
[[nodiscard]] NormalizerPtr unicode_form(UnicodeForm form);
[[nodiscard]] NormalizerPtr lowercase();
[[nodiscard]] NormalizerPtr strip_accents();  // removes the marks
[[nodiscard]] NormalizerPtr strip_spaces(bool left, bool right);
[[nodiscard]] NormalizerPtr prepend(std::string prefix);  // to a text that is not empty
[[nodiscard]] NormalizerPtr replace(std::string from, std::string to);
[[nodiscard]] NormalizerPtr replace_pattern(const std::string& pattern, std::string to);
// Hugging Face's way with a table: a whole grapheme of up to 5 bytes first, then each character.
[[nodiscard]] NormalizerPtr precompiled(Charsmap charsmap);

// Steps in order. Thread-safe.
class Normalizer {
 public:
  void add(NormalizerPtr step) { steps_.push_back(std::move(step)); }
  [[nodiscard]] bool empty() const { return steps_.empty(); }
  [[nodiscard]] std::string apply(std::string text, bool continued, SplitBudget& budget) const;

 private:
  std::vector<NormalizerPtr> steps_;
};

}  // namespace sluice
