#include "zero/shard_shape.hpp"

#include <algorithm>

namespace sluice {

std::int64_t device_elems(const ShardShape& shape, int g) {
  if (is_frozen(shape, g)) return 0;
  const std::int64_t owned = owned_elems(shape, g);
  if (shape.placement.optimizer == Tier::kDevice) return owned;
  const auto share =
      static_cast<std::int64_t>(shape.placement.device_fraction * static_cast<double>(owned));
  return std::min(owned, share / kChunkAlignElems * kChunkAlignElems);
}

}  // namespace sluice
