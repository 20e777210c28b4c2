// Cuts a stream of tokens into windows that count the loss of every token once. Pure.
//
//   stride = 2, seq = 4:   window 0   [0 1 2 3]         counts all four predictions
//                          window 1       [2 3 4 5]     2 and 3 are context; counts the last two
//
// Windows of `seq` positions begin every `stride` positions. A window counts the predictions that
// the previous window did not make: its last `stride`. The positions before are context. Every
// token but the first is predicted once. The last window may be short; its row is padded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/sample_source.hpp"
#include "runtime/data/token_source.hpp"

namespace sluice {

struct EvalWindow {
  std::int64_t first = 0;    // index of the first token in the stream
  std::int64_t context = 0;  // leading positions whose predictions are not counted
  std::int64_t length = 0;   // positions; the row is padded to seq
};

// REQUIRES: 1 <= stride <= seq. A stream of fewer than two tokens has no window.
[[nodiscard]] std::vector<EvalWindow> cut_windows(std::int64_t tokens, std::int64_t seq,
                                                  std::int64_t stride);

// Appends the row of a window: seq tokens and seq targets. Positions that are not counted have
// target kIgnoreTarget (kernels/cpu/softmax_cross_entropy.hpp). With `ends`, the row's documents
// are told apart (tell_documents). Throws IoError, with the stream's `name`, the token's index and
// its value, if a token is not below `vocab`.
void append_window(const std::string& name, const TokenSource& source, const EvalWindow& window,
                   std::int64_t seq, std::int64_t vocab, std::vector<std::int64_t>& tokens,
                   std::vector<std::int64_t>& targets, std::vector<std::int32_t>* ends = nullptr);

// Appends row `row` of packed documents, whose learned targets alone are counted. Returns 0, the
// end of each document, seq. Throws as append_window.
[[nodiscard]] std::vector<std::int32_t> append_packed_row(
    const std::string& name, const SampleSource& rows, std::int64_t row, std::int64_t seq,
    std::int64_t vocab, std::vector<std::int64_t>& tokens, std::vector<std::int64_t>& targets);

}  // namespace sluice
