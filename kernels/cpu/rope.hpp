// Rotary positions (Su et al. 2021) in place, in half-split order: elements i and i + head_dim / 2
// of a head form a pair. Arithmetic is fp32, rounded once to dtype. On the compute threads.
// Element-wise: bits do not depend on instruction set, threads or cuts.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

// `rows` tokens; token r has position r % seq. The heads of a token are contiguous, head_dim
// elements each. The next token begins `stride` elements later; elements from heads * head_dim to
// `stride` are not changed.
struct RopeArgs {
  void* x = nullptr;           // [rows, stride] of dtype; rotated in place
  const float* cos = nullptr;  // [seq, head_dim / 2]
  const float* sin = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t seq = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;  // even
  std::int64_t stride = 0;
  bool back = false;  // rotate in the opposite direction: gradient of the result -> gradient of x
};

// Throws Error if a buffer is null or sizes contradict each other.
void rope(const RopeArgs& args);

}  // namespace sluice
