// In-place conversion of an fp32 row to a 16-bit row. Internal to the loss kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/dispatch.hpp"

namespace sluice {

// Rounds the first n numbers of x to `dtype` and writes them at the begin of x. Uses a buffer,
// because input and output overlap.
inline void narrow_row(const KernelTable& table, DType dtype, float* x, std::int64_t n) {
  constexpr std::int64_t kBlock = 1024;
  std::uint16_t narrow[kBlock];
  auto* out = reinterpret_cast<std::byte*>(x);
  for (std::int64_t first = 0; first < n; first += kBlock) {
    const std::int64_t count = std::min(kBlock, n - first);
    table.convert(narrow, dtype, x + first, DType::kFloat32, count);
    std::memcpy(out + 2 * first, narrow, static_cast<std::size_t>(2 * count));
  }
}

}  // namespace sluice
