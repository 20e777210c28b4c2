// A sample for people: which tokens are context, which are learned. Pure.
#pragma once

#include <span>
#include <string>

#include "runtime/data/chat/chat_template.hpp"

namespace sluice {

struct SampleView {
  bool color = true;              // ANSI colours; else learned text stands between markers
  std::size_t most_tokens = 512;  // of each sample; a line tells how many more it has
};

// Context in grey, learned text in green, with a heading "sample N: 12 tokens, 5 learned". Control
// characters other than the line end are written as U+2400 and up, so that text moves no cursor. A
// character that tokens of both kinds share counts as the kind of its first token.
[[nodiscard]] std::string show_sample(const Tokenizer& tokenizer, const LearnedTokens& sample,
                                      std::int64_t number, const SampleView& view);

}  // namespace sluice
