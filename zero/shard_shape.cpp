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

void share_states(ShardShape& shape, double host_fraction) {
  for (GroupShape& group : shape.groups) group.states_on_host = false;
  if (shape.placement.optimizer != Tier::kNvme || host_fraction <= 0) return;
  const int count = static_cast<int>(shape.groups.size());
  const auto elems_of = [&](int g) { return static_cast<double>(off_device_elems(shape, g)); };
  double all = 0;
  for (int g = 0; g < count; ++g) all += elems_of(g);
  const double most = host_fraction * all;
  double chosen = 0;
  const auto choose = [&](int g) {
    const double elems = elems_of(g);
    GroupShape& group = nth(shape.groups, g);
    if (elems == 0 || group.states_on_host || chosen + elems > most) return;
    group.states_on_host = true;
    chosen += elems;
  };
  // Nothing hides the transfers of what is used first. The gradients of the first units, a quarter
  // of them all, come too late for early updates.
  const double late = shape.placement.speculate ? std::min(all / 4, most / 2) : 0;
  int next = 0;
  double before = 0;
  while (next < count && (next == 0 || before + elems_of(next) <= late)) {
    choose(next);
    before += elems_of(next++);
  }
  const double first = chosen;
  double seen = 0;
  for (int g = next; g < count; ++g) {
    if ((chosen - first) * (all - before) <= seen * (most - first)) choose(g);
    seen += elems_of(g);
  }
  for (int g = count - 1; g >= 0; --g) choose(g);  // what is left of the share
}

}  // namespace sluice
