// Lookup in a token table whose rows are split over ranks, and the gradient. Bits do not depend on
// threads.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.hpp"

namespace sluice {

// The slice [first, first + rows) of a table of `table_rows` rows.
struct EmbeddingSlice {
  std::span<const std::int64_t> tokens;
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t table_rows = 0;
  std::int64_t hidden = 0;
};

// out[t] = the row of tokens[t], or zeros if another rank has that row. The sum of `out` over ranks
// is the embedding. out: [tokens, hidden], slice: [rows, hidden], both of dtype. Throws Error for a
// token outside the whole table, before it writes.
void embedding_slice_forward(void* out, const void* slice, DType dtype, const EmbeddingSlice& args);

// grad[tokens[t] - first] += dy[t] for the tokens of the slice, in order, in fp32. Throws as above.
void embedding_slice_backward(float* grad, const void* dy, DType dtype, const EmbeddingSlice& args);

}  // namespace sluice
