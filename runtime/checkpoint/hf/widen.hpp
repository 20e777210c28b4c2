// Conversion of stored elements to fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"

namespace sluice {

// Converts elements [first, first + out.size()) of the array at `stored`, which may have any
// alignment. Thread-safe.
void widen(const std::byte* stored, DType dtype, std::int64_t first, std::span<float> out);

}  // namespace sluice
