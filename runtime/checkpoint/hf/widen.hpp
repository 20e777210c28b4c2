// Stored elements in fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"

namespace sluice {

// Elements [first, first + out.size()) of what is stored from `stored` on, at any address: a file's
// tensors begin anywhere. Thread-safe.
void widen(const std::byte* stored, DType dtype, std::int64_t first, std::span<float> out);

}  // namespace sluice
