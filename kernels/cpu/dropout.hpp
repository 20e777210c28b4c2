// Dropout with a Philox mask (philox.hpp). The mask is never stored.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

struct DropoutArgs {
  void* out = nullptr;             // n elements of dtype
  const void* x = nullptr;         // n elements of dtype; may be `out`
  const void* residual = nullptr;  // n elements of dtype, or null; may be `out`
  DType dtype = DType::kFloat32;
  std::int64_t n = 0;
  double p = 0;  // probability of a zero, 0 <= p < 1
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  std::int64_t first_element = 0;  // of the stream
};

// out[i] = residual[i] + x[i] * keep[i] / (1 - p), with `keep` of fill_dropout_mask. Bits do not
// depend on the cut into calls, instruction set or threads.
void dropout_add(const DropoutArgs& args);

}  // namespace sluice
