// Rounds a bf16 matrix to values of an 8-bit format, kept as bf16. A CPU that multiplies such
// matrices multiplies the values that a GPU's 8-bit product reads (fp8_core.hpp).
//
// On the compute threads. Bits do not depend on instruction set, threads or cuts.
#pragma once

#include <cstdint>

namespace sluice {

enum class Fp8Format { kE4M3, kE5M2 };

// bf16 rows of `columns` elements; a row begins `row_stride` elements behind the previous one.
struct Bf16Matrix {
  const std::uint16_t* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
};

// out [rows, columns], contiguous = x times the scale of x's largest magnitude, rounded to the
// format, divided by the scale again. All NaN if an element of x is not finite. `out` must not
// overlap x. REQUIRES: row_stride >= columns.
void round_to_fp8(std::uint16_t* out, const Bf16Matrix& x, Fp8Format format);

}  // namespace sluice
