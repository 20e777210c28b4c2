#include "parallel/comm/host/host_plan.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "parallel/comm/host/host_segment.hpp"

namespace sluice {

std::int64_t host_block_elems(int size, DType input) {
  const std::int64_t peers = std::max(1, size - 1);
  return std::clamp<std::int64_t>(512 * kKiB / peers, 32 * kKiB, 256 * kKiB) / size_of(input);
}

std::int64_t host_staging_bytes(int size, std::int64_t total_elems, DType input) {
  if (size == 1) return 0;
  return std::min(total_elems, host_block_elems(size, input)) * (size - 1) * size_of(input);
}

std::int64_t host_bounce_elems(int readers, DType dtype) {
  return kHostBounceBytes / 2 / std::max(1, readers) / size_of(dtype);
}

}  // namespace sluice
