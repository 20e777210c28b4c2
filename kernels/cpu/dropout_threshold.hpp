// Shared by the CPU and CUDA masks. Not part of philox.hpp, because CUDA sources are C++17.
#pragma once

#include <cstdint>

namespace sluice {

// p * 2^32, rounded. An element is dropped if its random word is below the threshold. Throws Error
// unless 0 <= p < 1.
[[nodiscard]] std::uint64_t dropout_threshold(double p);

}  // namespace sluice
