#include "runtime/data/tokenizer/pre_tokenizer.hpp"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// Extends a word over a part that lies before or behind it.
void extend(SplitPart& word, const SplitPart& part) {
  const char* const first = std::min(word.text.data(), part.text.data());
  word.text = {first, word.text.size() + part.text.size()};
}

// Each match joins the neighbour that the walk passed just before, unless that is a match too.
template <typename Walk>
std::vector<SplitPart> merge_matches(const Walk& parts) {
  std::vector<SplitPart> merged;
  bool previous = false;
  for (const SplitPart& part : parts) {
    if (part.is_match && !previous && !merged.empty()) {
      extend(merged.back(), part);
    } else {
      merged.push_back(part);
    }
    previous = part.is_match;
  }
  return merged;
}

std::vector<SplitPart> settle(std::vector<SplitPart> parts, MatchFate fate) {
  if (fate == MatchFate::kMergedWithPrevious) return merge_matches(parts);
  if (fate == MatchFate::kMergedWithNext) {
    std::reverse(parts.begin(), parts.end());
    parts = merge_matches(parts);
    std::reverse(parts.begin(), parts.end());
  } else if (fate == MatchFate::kRemoved) {
    std::erase_if(parts, [](const SplitPart& part) { return part.is_match; });
  } else if (fate == MatchFate::kContiguous) {
    std::vector<SplitPart> joined;
    for (const SplitPart& part : parts) {
      if (!joined.empty() && joined.back().is_match == part.is_match) {
        extend(joined.back(), part);
      } else {
        joined.push_back(part);
      }
    }
    return joined;
  }
  return parts;
}

}  // namespace

void PreTokenizer::add_pattern(const std::string& pattern, MatchFate fate, bool invert) {
  Step step;
  step.pattern = std::make_unique<SplitPattern>(pattern);
  step.fate = fate;
  step.invert = invert;
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_marks(std::string mark, PrefixScheme scheme, bool split) {
  Step step;
  step.mark = std::move(mark);
  step.scheme = scheme;
  step.split = split;
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_space_prefix() { steps_.emplace_back(); }

WordRule PreTokenizer::only_rule() const {
  if (steps_.size() != 1 || steps_[0].pattern == nullptr || steps_[0].invert)
    return WordRule::kNone;
  return steps_[0].fate == MatchFate::kIsolated ? steps_[0].pattern->rule() : WordRule::kNone;
}

std::vector<Word> PreTokenizer::split(Word text, std::deque<std::string>& kept,
                                      SplitBudget& budget) const {
  std::vector<Word> words{text}, finer;
  for (const Step& step : steps_) {
    finer.clear();
    for (const Word& word : words) {
      if (step.pattern != nullptr) {
        split_by(step, word, finer, budget);
      } else {
        mark(step, word, finer, kept);
      }
    }
    words.swap(finer);
  }
  return words;
}

void PreTokenizer::split_by(const Step& step, const Word& word, std::vector<Word>& out,
                            SplitBudget& budget) {
  const auto add = [&](std::string_view text) {
    const bool start = text.data() == word.text.data();
    out.push_back({text, word.first && start, word.continued && start});
  };
  if (step.fate == MatchFate::kIsolated) {
    std::vector<std::string_view> words;
    step.pattern->split(word.text, words, budget);
    for (const std::string_view text : words) add(text);
    return;
  }
  std::vector<SplitPart> parts;
  step.pattern->parts(word.text, parts, budget);
  for (SplitPart& part : parts) part.is_match = part.is_match != step.invert;
  for (const SplitPart& part : settle(std::move(parts), step.fate)) add(part.text);
}

void PreTokenizer::mark(const Step& step, const Word& word, std::vector<Word>& out,
                        std::deque<std::string>& kept) {
  const bool space = step.mark.empty();
  const std::string_view mark = space ? std::string_view(" ") : std::string_view(step.mark);
  std::string text;
  for (const char c : word.text) {
    if (c == ' ') {
      text += mark;
    } else {
      text += c;
    }
  }
  const bool wanted = space || step.scheme == PrefixScheme::kAlways ||
                      (step.scheme == PrefixScheme::kFirst && word.first);
  if (wanted && !word.continued && !text.starts_with(mark)) text.insert(0, mark);
  const std::string_view all = kept.emplace_back(std::move(text));
  std::size_t from = 0;
  while (step.split && from < all.size()) {
    const std::size_t next = all.find(mark, from + 1);
    if (next == std::string_view::npos) break;
    out.push_back({all.substr(from, next - from), word.first && from == 0});
    from = next;
  }
  out.push_back({all.substr(from), word.first && from == 0});
}

}  // namespace sluice
