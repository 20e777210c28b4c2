// Cuts normalised text into the words that a model encodes one by one.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/tokenizer/split_pattern.hpp"

namespace sluice {

// What becomes of the matches of a pattern: words of their own, nothing, one word with the matches
// beside them, a part of the word before or behind.
enum class MatchFate { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };

struct Word {
  std::string_view text;
  bool first = false;      // at the start of the whole text
  bool continued = false;  // behind other text, so that nothing is put before the word
};

enum class PrefixScheme { kNever, kFirst, kAlways };

// Thread-safe.
class PreTokenizer {
 public:
  void add_pattern(const std::string& pattern, MatchFate fate, bool invert);
  // Spaces become `mark`; a mark is put before the words of `scheme`; each mark begins a word if
  // `split`.
  void add_marks(std::string mark, PrefixScheme scheme, bool split);
  // A space before each word that has none.
  void add_space_prefix();

  // Words in order. `kept` holds the text of changed words. Throws SplitError.
  [[nodiscard]] std::vector<Word> split(Word text, std::deque<std::string>& kept,
                                        SplitBudget& budget) const;
  // The rule of the only step, which isolates; kNone for other steps.
  [[nodiscard]] WordRule only_rule() const;
  [[nodiscard]] bool empty() const { return steps_.empty(); }

 private:
  struct Step {
    std::unique_ptr<SplitPattern> pattern;  // nullptr: marks or a space
    MatchFate fate = MatchFate::kIsolated;
    bool invert = false;
    std::string mark;  // empty: a space
    PrefixScheme scheme = PrefixScheme::kNever;
    bool split = false;
  };
  static void split_by(const Step& step, const Word& word, std::vector<Word>& out,
                       SplitBudget& budget);
  static void mark(const Step& step, const Word& word, std::vector<Word>& out,
                   std::deque<std::string>& kept);
  std::vector<Step> steps_;
};

}  // namespace sluice
