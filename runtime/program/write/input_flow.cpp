#include "runtime/program/write/input_flow.hpp"

#include <utility>

#include "base/index.hpp"
#include "runtime/program/write/use_order.hpp"

namespace sluice {

InputFlow::InputFlow(ProgramBuilder& builder, const StepShape& shape, std::span<const Use> uses,
                     bool training)
    : builder_(builder),
      shape_(shape),
      uses_(uses),
      active_(training && shape.placement.activations != Tier::kDevice),
      travels_(shape.units.size(),
               std::vector<Travel>(static_cast<std::size_t>(shape.micro_batches))) {}

InputFlow::Travel& InputFlow::travel(int unit, int micro_batch) {
  return nth(nth(travels_, unit), micro_batch);
}

void InputFlow::forward_done(const Use& use, BufferId input, BufferId kept) {
  const std::int64_t bytes = active_ ? leaving_bytes(shape_, use.unit) : 0;
  if (bytes == 0) return;
  Travel& t = travel(use.unit, use.micro_batch);
  t = Travel{};
  t.device = input;
  t.kept = kept;
  t.bytes = bytes;
  t.host = builder_.buffer({.tag = Tag::kActivations,
                            .bytes = bytes,
                            .in_arena = true,
                            .tier = Tier::kHost,
                            .unit = use.unit,
                            .micro_batch = use.micro_batch});
  Op save{.kind = OpKind::kSaveInput, .lane = Lane::kToHost, .unit = use.unit};
  save.micro_batch = use.micro_batch;
  save.live = {t.host};
  save.host_slot = t.host;
  save.moved_bytes = bytes;
  Op write = save;
  save.device_slot = input;
  t.saved = builder_.emit(std::move(save));
  if (shape_.placement.activations == Tier::kNvme) {
    write.kind = OpKind::kWriteInput;
    write.lane = Lane::kDisk;
    write.live.clear();
    write.waits = {t.saved};
    t.saved = builder_.emit(std::move(write));
  }
  leaving_.push_back(use);
}

void InputFlow::retire_oldest(Op& op) {
  Travel& t = travel(leaving_.front().unit, leaving_.front().micro_batch);
  leaving_.pop_front();
  op.waits.push_back(t.saved);
  op.dead_before.push_back(std::exchange(t.device, -1));
  if (t.kept >= 0) op.dead_before.push_back(std::exchange(t.kept, -1));
  if (shape_.placement.activations == Tier::kNvme) {
    op.dead_before.push_back(std::exchange(t.host, -1));
  }
  t.away = true;
}

void InputFlow::start_fetch(const Use& use) {
  Travel& t = travel(use.unit, use.micro_batch);
  Op fetch{.kind = OpKind::kFetchInput, .lane = Lane::kToDevice, .unit = use.unit};
  fetch.micro_batch = use.micro_batch;
  fetch.moved_bytes = t.bytes;
  // With stages, the fetch may be issued before the compute operation that waits for the save.
  if (is_pipelined(shape_)) fetch.waits = {t.saved};
  if (shape_.placement.activations == Tier::kNvme) {
    t.host = builder_.buffer({.tag = Tag::kActivations,
                              .bytes = t.bytes,
                              .in_arena = true,
                              .tier = Tier::kHost,
                              .unit = use.unit,
                              .micro_batch = use.micro_batch});
    Op read = fetch;
    read.kind = OpKind::kReadInput;
    read.lane = Lane::kDisk;
    read.live = {t.host};
    read.host_slot = t.host;
    read.waits = std::move(fetch.waits);
    fetch.waits = {builder_.emit(std::move(read))};
  }
  fetch.host_slot = t.host;
  const std::int64_t input = input_bytes(shape_, use.unit);
  const std::int64_t kept = t.bytes > input ? nth(shape_.units, use.unit).memory.kept_small : 0;
  t.device = builder_.buffer({.tag = Tag::kActivations,
                              .bytes = t.bytes,
                              .small = small_bytes(shape_, input) + kept,
                              .unit = use.unit,
                              .micro_batch = use.micro_batch});
  fetch.live = {t.device};
  fetch.device_slot = t.device;
  t.fetched = builder_.emit(std::move(fetch));
}

void InputFlow::enter(std::size_t i, Op& op) {
  if (!active_) return;
  const Use& use = uses_[i];
  const bool turn = use.kind != OpKind::kForward;
  while (leaving_.size() > (turn ? 0 : 1)) retire_oldest(op);
  const bool staged = is_pipelined(shape_);  // backwards may come one slot apart
  if (use.kind != OpKind::kBackward && !staged) return;
  const std::size_t end =
      i + 1 + static_cast<std::size_t>(shape_.prefetch_units > 0 ? shape_.prefetch_units : 0);
  for (std::size_t j = i; j < uses_.size() && j < end; ++j) {
    if (uses_[j].kind != OpKind::kBackward && staged) continue;
    if (uses_[j].kind != OpKind::kBackward) break;
    const Travel& t = travel(uses_[j].unit, uses_[j].micro_batch);
    if (t.away && t.fetched < 0) start_fetch(uses_[j]);
  }
  Travel& t = travel(use.unit, use.micro_batch);
  if (use.kind != OpKind::kBackward || !t.away) return;
  op.waits.push_back(t.fetched);
  op.dead_before.push_back(std::exchange(t.host, -1));
}

BufferId InputFlow::fetched(const Use& use) const {
  const Travel& t = nth(nth(travels_, use.unit), use.micro_batch);
  return active_ && t.away ? t.device : -1;
}

}  // namespace sluice
