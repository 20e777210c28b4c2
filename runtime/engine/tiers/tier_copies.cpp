#include "runtime/engine/tiers/tier_copies.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace sluice {

void TierCopies::bring(DevicePtr from, std::int64_t elems, const Use& use) {
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(float));
  if (copies_->is_host()) return use(reinterpret_cast<const float*>(from.address()), 0, elems);
  check(!bounce_.empty(), "a program that adds on the host has a bounce buffer");
  const std::int64_t at_once = std::ssize(bounce_) / 2 / kWidth;
  // Two halves alternate. Piece n overwrites the half of piece n-2, whose use() has returned.
  const auto half = [&](std::int64_t first) {
    return reinterpret_cast<float*>(bounce_.data()) + first / at_once % 2 * at_once;
  };
  const auto start = [&](std::int64_t first) {
    const std::int64_t n = std::min(at_once, elems - first);
    copies_->to_host(half(first), from + first * kWidth, n * kWidth);
    return copies_->begun();
  };
  Ticket next = start(0);
  for (std::int64_t first = 0; first < elems; first += at_once) {
    const Ticket now = std::exchange(next, {});
    if (first + at_once < elems) next = start(first + at_once);
    now.wait();
    use(half(first), first, std::min(at_once, elems - first));
  }
}

}  // namespace sluice
