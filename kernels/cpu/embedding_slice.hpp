// Rows of a token table that is cut over ranks, each with a run of rows, and their gradient.
// Deterministic on any number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.hpp"

namespace sluice {

// Rows [first, first + rows) of a table of `table_rows`.
struct EmbeddingSlice {
  std::span<const std::int64_t> tokens;
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t table_rows = 0;
  std::int64_t hidden = 0;
};

// out[t] = the row of tokens[t], or zeros where another rank has it: the sum over ranks is the
// embedding. out [tokens, hidden], slice [rows, hidden], both of dtype. Throws Error on a token
// outside the whole table, before anything is written.
void embedding_slice_forward(void* out, const void* slice, DType dtype, const EmbeddingSlice& args);

// grad[tokens[t] - first] += dy[t] for the tokens of the slice, in order; fp32. Throws as above.
void embedding_slice_backward(float* grad, const void* dy, DType dtype, const EmbeddingSlice& args);

}  // namespace sluice
