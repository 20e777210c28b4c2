#include "kernels/cpu/fp8.hpp"

#include <algorithm>
#include <atomic>

#include "base/error.hpp"
#include "kernels/cpu/fp8_core.hpp"
#include "kernels/cpu/row_grain.hpp"

namespace sluice {
namespace {

constexpr std::uint32_t kMagnitude = 0x7fffU;
constexpr std::uint16_t kNan = 0x7fc0U;

template <class Body>
void for_rows(const Bf16Matrix& x, Body body) {
  parallel_for(x.rows, row_grain(DType::kBFloat16, x.columns),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   body(row, x.data + row * x.row_stride);
                 }
               });
}

// Bits in fp32 of the largest magnitude; 0 for an empty matrix.
std::uint32_t largest_magnitude(const Bf16Matrix& x) {
  std::atomic<std::uint32_t> largest{0};
  for_rows(x, [&](std::int64_t, const std::uint16_t* from) {
    std::uint16_t of_row = 0;
    for (std::int64_t i = 0; i < x.columns; ++i) {
      of_row = std::max(of_row, static_cast<std::uint16_t>(from[i] & kMagnitude));
    }
    // Relaxed: a maximum of integers has no order, and the end of the loop joins the threads.
    std::uint32_t seen = largest.load(std::memory_order_relaxed);
    while (of_row > seen &&
           !largest.compare_exchange_weak(seen, of_row, std::memory_order_relaxed)) {
    }
  });
  return largest.load(std::memory_order_relaxed) << 16;
}

template <class Format>
void round_rows(std::uint16_t* out, const Bf16Matrix& x) {
  const std::uint32_t amax = largest_magnitude(x);
  const float scale = fp8::scale_of<Format>(amax);
  const float inverse = fp8::inverse_scale_of<Format>(amax);
  const bool finite = amax < fp8::kInfinity;
  for_rows(x, [&](std::int64_t row, const std::uint16_t* from) {
    std::uint16_t* const to = out + row * x.columns;
    if (!finite) {
      std::fill_n(to, x.columns, kNan);
      return;
    }
    for (std::int64_t i = 0; i < x.columns; ++i) {
      const float value = fp8::float_of(static_cast<std::uint32_t>(from[i]) << 16);
      const float rounded = fp8::decode<Format>(fp8::encode<Format>(value * scale)) * inverse;
      to[i] = static_cast<std::uint16_t>(fp8::bits_of(rounded) >> 16);
    }
  });
}

}  // namespace

void round_to_fp8(std::uint16_t* out, const Bf16Matrix& x, Fp8Format format) {
  check(x.rows >= 0 && x.columns >= 0 && x.row_stride >= x.columns,
        "round_to_fp8: rows overlap or a size is negative");
  if (x.rows == 0 || x.columns == 0) return;
  check(out != nullptr && x.data != nullptr, "round_to_fp8: a null buffer");
  if (format == Fp8Format::kE4M3) {
    round_rows<fp8::E4M3>(out, x);
  } else {
    round_rows<fp8::E5M2>(out, x);
  }
}

}  // namespace sluice
