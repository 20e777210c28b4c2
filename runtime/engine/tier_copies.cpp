#include "runtime/engine/tier_copies.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace sluice {

bool adds_on_host(const Program& program) {
  return std::any_of(program.ops.begin(), program.ops.end(),
                     [](const Op& op) { return op.kind == OpKind::kStoreGrads && op.accumulate; });
}

// Moments are the host's alone. Master weights are copied where no others are made of them.
bool is_copied(Tag tag, DType dtype) {
  return tag != Tag::kMoments && (tag != Tag::kMaster || dtype == DType::kFloat32);
}

TierCopies::TierCopies(std::shared_ptr<DeviceCopies> copies, const TierOptions& options,
                       HostPool& pool, std::span<const Program* const> programs)
    : copies_(std::move(copies)) {
  if (copies_->is_host()) return;
  if (std::any_of(programs.begin(), programs.end(),
                  [](const Program* program) { return adds_on_host(*program); })) {
    bounce_ = pool.allocate("bounce", options.bounce_bytes, options.dma_pages);
  }
}

void TierCopies::bring(DevicePtr from, std::int64_t elems, const Use& use) {
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(float));
  if (copies_->is_host()) return use(reinterpret_cast<const float*>(from.address()), 0, elems);
  check(bounce_.bytes() > 0, "a program that adds on the host has a bounce buffer");
  const std::int64_t at_once = bounce_.bytes() / 2 / kWidth;
  // The half that a piece goes to was last read by use() of the piece before the one before.
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

void TierCopies::leak_if_lost(std::span<HostBlock> blocks) noexcept {
  if (!copies_->lost()) return;
  for (HostBlock& block : blocks) block.leak();
  bounce_.leak();
}

}  // namespace sluice
