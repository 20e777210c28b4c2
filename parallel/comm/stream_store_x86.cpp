#include <cpuid.h>
#include <emmintrin.h>

#include <algorithm>
#include <cstring>

#include "parallel/comm/stream_store.hpp"

namespace sluice {
namespace {

float add_one(const float* a, const float* b, std::int64_t i) {
  float x = 0;
  float y = 0;
  std::memcpy(&x, a + i, sizeof x);
  std::memcpy(&y, b + i, sizeof y);
  return x + y;
}

// True if the processor has "enhanced rep movsb": it copies lines without reading their old
// contents.
bool copies_lines_whole() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & 1U << 9) != 0;
}

}  // namespace

void stream_add(const float* a, const float* b, std::int64_t n, float* to) {
  constexpr std::int64_t kLanes = 4;
  const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) / 4 % 4);
  std::int64_t i = 0;
  for (const std::int64_t head = std::min(n, (kLanes - misaligned) % kLanes); i < head; ++i) {
    to[i] = add_one(a, b, i);
  }
  for (; i + kLanes <= n; i += kLanes) {
    _mm_stream_ps(to + i, _mm_add_ps(_mm_loadu_ps(a + i), _mm_loadu_ps(b + i)));
  }
  for (; i < n; ++i) to[i] = add_one(a, b, i);
  _mm_sfence();  // a release does not order streaming stores
}

void stream_copy(void* to, const void* from, std::int64_t bytes) {
  static const bool whole = copies_lines_whole();
  if (bytes < kStreamBytes || !whole) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

}  // namespace sluice
