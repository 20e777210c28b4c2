// Dropout with a Philox mask (philox.hpp), applied without ever storing the mask.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"

namespace sluice {

struct DropoutArgs {
  void* out = nullptr;             // n elements of dtype
  const void* x = nullptr;         // likewise; may be out
  const void* residual = nullptr;  // likewise, or null for none; may be out
  DType dtype = DType::kFloat32;
  std::int64_t n = 0;
  double p = 0;  // probability of a zero, 0 <= p < 1
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  std::int64_t first_element = 0;  // of the stream
};

// out[i] = residual[i] + x[i] * keep[i] / (1 - p) with the keep of fill_dropout_mask. The same for
// any cut into calls, on any instruction set and number of threads.
void dropout_add(const DropoutArgs& args);

}  // namespace sluice
