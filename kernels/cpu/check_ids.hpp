// Checks token ids against the vocabulary before a kernel uses them as indices. Internal to
// kernels/cpu.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/error.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"

namespace sluice {

[[noreturn]] inline void refuse_id(const std::string& where, std::int64_t id,
                                   const std::string& outside) {
  throw Error(where + " is " + std::to_string(id) + ", outside " + outside +
              "; was the text tokenised with the tokenizer of this model?");
}

// Throws Error for a token outside [0, rows).
inline void check_tokens(std::span<const std::int64_t> tokens, std::int64_t rows) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < rows) continue;
    refuse_id("embedding: token " + std::to_string(i), tokens[i],
              "the table of " + std::to_string(rows) + " rows");
  }
}

// Throws Error for a target that is neither kIgnoreTarget nor in [0, vocab). targets: [rows].
inline void check_targets(const std::int64_t* targets, std::int64_t rows, std::int64_t vocab) {
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] == kIgnoreTarget || (targets[row] >= 0 && targets[row] < vocab)) continue;
    refuse_id("cross entropy: the target of row " + std::to_string(row), targets[row],
              "the vocabulary of " + std::to_string(vocab));
  }
}

}  // namespace sluice
