// Rotary positions (Su et al. 2021) in place, in the half-split order: elements i and i + D/2 of a
// head turn together. Arithmetic in fp32, rounded once to dtype. On the compute threads;
// element-wise: bits do not depend on instruction set, threads or cuts.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

// `rows` tokens, token r at position r % seq. A token's heads lie one after another, head_dim
// elements each; the next token begins `stride` elements on (stride > heads * head_dim: what lies
// beyond is left alone).
struct RopeArgs {
  void* x = nullptr;           // [rows, stride] of dtype; turned in place
  const float* cos = nullptr;  // [seq, head_dim / 2]
  const float* sin = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t seq = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;  // even
  std::int64_t stride = 0;
  bool back = false;  // turn the other way: the gradient by x from that by the result
};

// Throws Error where a buffer is missing or sizes contradict each other.
void rope(const RopeArgs& args);

}  // namespace sluice
