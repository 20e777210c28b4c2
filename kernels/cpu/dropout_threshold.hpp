// Shared by the CPU and the CUDA masks; apart from philox.hpp because CUDA sources are C++17.
#pragma once

#include <cstdint>

namespace sluice {

// A random word below this drops its element: p * 2^32, rounded. Throws Error unless 0 <= p < 1.
[[nodiscard]] std::uint64_t dropout_threshold(double p);

}  // namespace sluice
