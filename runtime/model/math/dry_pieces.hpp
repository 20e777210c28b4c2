// Loops over equal pieces of a tensor, shortened in a dry run on the meta device.
#pragma once

#include <cstdint>

namespace sluice {

// Start of the piece after the one at `start`, of pieces of `step` elements from 0 to `end`. A dry
// run counts allocations, and every piece frees what it takes. So a dry run goes from the second
// piece (which may add to the first one's results) to the last one, and its time does not grow with
// the tensor.
[[nodiscard]] constexpr std::int64_t next_piece(std::int64_t start, std::int64_t step,
                                                std::int64_t end, bool dry) {
  const std::int64_t next = start + step;
  if (!dry || start < step || next >= end) return next;
  return (end - 1) / step * step;
}

}  // namespace sluice
