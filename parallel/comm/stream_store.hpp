// Writing past the caches: memory that a store covers whole is not read first, which is a third of
// the bytes a large sum or copy moves. For data that is too large to be found in the cache by who
// reads it next. What is written is ordered before the caller's later stores, as after any other
// function. Thread-safe. One file a processor, chosen by CMake. Internal to comm.
#pragma once

#include <cstdint>

namespace sluice {

// From here on it pays: less lies in a second-level cache.
inline constexpr std::int64_t kStreamBytes = 1LL << 20;

// to[i] = a[i] + b[i], n elements. `a` and `b` need not be aligned to 4 bytes. REQUIRES: `to` is
// neither of them (memory that was just read is better written through the cache).
void stream_add(const float* a, const float* b, std::int64_t n, float* to);

// memcpy, for any size.
void stream_copy(void* to, const void* from, std::int64_t bytes);

}  // namespace sluice
