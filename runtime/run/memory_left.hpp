// Free memory, and the machine's free swap.
#pragma once

#include <cstdint>

namespace sluice {

// Bytes free on the machine or in this process's control group, whichever is less; the largest
// number if the system reports no limit. Thread-safe.
[[nodiscard]] std::int64_t memory_left_bytes();

// Bytes of swap that are free; 0 if the system reports none. Thread-safe.
[[nodiscard]] std::int64_t swap_left_bytes();

}  // namespace sluice
