// stream_store.hpp for processors without streaming stores.
#include <cstring>

#include "parallel/comm/stream_store.hpp"

namespace sluice {

void stream_add(const float* a, const float* b, std::int64_t n, float* to) {
  for (std::int64_t i = 0; i < n; ++i) {
    float x = 0;
    float y = 0;
    std::memcpy(&x, a + i, sizeof x);
    std::memcpy(&y, b + i, sizeof y);
    to[i] = x + y;
  }
}

void stream_copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace sluice
