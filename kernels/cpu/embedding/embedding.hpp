// Lookup of rows in the token and position tables, and the gradient. Bits do not depend on threads.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.hpp"

namespace sluice {

struct EmbeddingArgs {
  void* out = nullptr;              // [tokens, hidden] of dtype
  const void* table = nullptr;      // [rows, hidden] of dtype
  const void* positions = nullptr;  // [position_rows, hidden] of dtype, or null
  DType dtype = DType::kFloat32;
  std::span<const std::int64_t> tokens;
  std::int64_t rows = 0;
  std::int64_t position_rows = 0;  // token t uses position row t % position_rows
  std::int64_t hidden = 0;
};

// out[t] = table[tokens[t]] + positions[t % position_rows], added in fp32 and rounded once. Throws
// Error for a token outside the table, before it writes.
void embedding_forward(const EmbeddingArgs& args);

// grad_table[tokens[t]] += dy[t] for t = 0, 1, ... in this order, in fp32. grad_table: [rows,
// hidden]; dy: [tokens, hidden] of dtype. Threads share the work by columns. Throws as above. For
// the gradient of a position table, pass the positions as tokens.
void embedding_backward(float* grad_table, std::span<const std::int64_t> tokens, const void* dy,
                        DType dtype, std::int64_t rows, std::int64_t hidden);

}  // namespace sluice
