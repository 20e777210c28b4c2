// Stores that bypass the caches. An ordinary store reads its cache line first; a streaming store
// that covers the whole line does not. This saves a third of the bytes that a large sum or copy
// moves. For data that is too large to stay in the cache until its next reader.
//
// The stores are ordered before the caller's later stores. Thread-safe. One source per processor
// family, chosen by CMake. Internal to comm.
#pragma once

#include <cstdint>

namespace sluice {

// Smallest size that gains. Smaller data fits in the second-level cache.
inline constexpr std::int64_t kStreamBytes = 1LL << 20;

// to[i] = a[i] + b[i] for n elements. `a` and `b` need not be aligned to 4 bytes. REQUIRES: `to` is
// neither `a` nor `b` (memory that was just read is better written through the cache).
void stream_add(const float* a, const float* b, std::int64_t n, float* to);

// memcpy for any size; may bypass the caches from kStreamBytes on.
void stream_copy(void* to, const void* from, std::int64_t bytes);

}  // namespace sluice
