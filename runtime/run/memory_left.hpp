// What the machine, or the control group this process is in, has left to hand out.
#pragma once

#include <cstdint>

namespace sluice {

// Bytes; the largest number where nothing says so. Thread-safe.
[[nodiscard]] std::int64_t memory_left_bytes();

}  // namespace sluice
