// Free memory of the machine or of this process's control group, whichever is less.
#pragma once

#include <cstdint>

namespace sluice {

// Bytes; the largest number if the system reports no limit. Thread-safe.
[[nodiscard]] std::int64_t memory_left_bytes();

}  // namespace sluice
