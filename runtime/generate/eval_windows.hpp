// How a stream of tokens is cut into samples that count every token's loss once. Pure.
//
// Every token but the first is predicted once. Windows of `seq` positions begin every `stride`
// positions; a window counts the predictions that the one before did not make, which are its last
// `stride`, and takes the positions before these as context. The last window may be short: its row
// is filled up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/token_source.hpp"

namespace sluice {

struct EvalWindow {
  std::int64_t first = 0;    // token of the stream
  std::int64_t context = 0;  // its first positions, whose predictions are not counted
  std::int64_t length = 0;   // positions; the rest up to seq is filled up
};

// REQUIRES: 1 <= stride <= seq. A stream of fewer than two tokens has none.
[[nodiscard]] std::vector<EvalWindow> cut_windows(std::int64_t tokens, std::int64_t seq,
                                                  std::int64_t stride);

// The row of a window: seq tokens and targets; what is not counted has target kIgnoreTarget
// (kernels/cpu/softmax_cross_entropy.hpp). Appends. Throws IoError where a token is not below
// `vocab`, with the stream's `name`, the token's place in it and its value.
void append_window(const std::string& name, const TokenSource& source, const EvalWindow& window,
                   std::int64_t seq, std::int64_t vocab, std::vector<std::int64_t>& tokens,
                   std::vector<std::int64_t>& targets);

}  // namespace sluice
