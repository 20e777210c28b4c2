// A row of fp32 numbers made one of 16 bits where it lies. Internal to the loss kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/dispatch.hpp"

namespace sluice {

// The first n numbers of x, rounded, at its beginning. Through a buffer: input and output overlap.
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
