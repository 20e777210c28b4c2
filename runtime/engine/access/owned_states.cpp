#include "runtime/engine/access/owned_states.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/cast.hpp"
#include "kernels/cpu/update/remainder.hpp"
#include "runtime/engine/engine_setup.hpp"
#include "runtime/engine/ops/step_carry.hpp"
#include "runtime/engine/tiers/tier_store.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

// A frozen group's parameters stand for its master weights. Beside remainders they are the high
// part of master weights.
at::Tensor array_of(const StepShape& shape, GroupStore& store, int g, StateKind kind) {
  const GroupState& group = store.group(g);
  if (kind != StateKind::kMaster) return group.moments[moment_index(kind)];
  if (group.remainders.defined()) return group.shard.narrow(0, 0, group.remainders.numel());
  return is_frozen(shape, g) ? group.shard : group.master;
}

// Copies the elements once more, because a tensor over the caller's memory would need from_blob.
void to_host(const at::Tensor& from, std::span<float> values) {
  const at::Tensor here = from.is_cpu() ? from : from.to(c10::DeviceType::CPU);
  convert(values.data(), DType::kFloat32, host_bytes(here), dtype_of(here), here.numel());
}

at::Tensor tensor_of(std::span<const float> values) {
  const at::Tensor tensor =
      empty_tensor({static_cast<std::int64_t>(values.size())}, c10::ScalarType::Float);
  std::copy(values.begin(), values.end(), host_data<float>(tensor));
  return tensor;
}

std::span<float> span_of(const at::Tensor& tensor) {
  return {host_data<float>(tensor), static_cast<std::size_t>(tensor.numel())};
}

}  // namespace

OwnedStates::OwnedStates(const EngineSetup& setup, GroupStore& store, StepCarry& carry,
                         TierStore* tiers)
    : setup_(setup),
      store_(store),
      carry_(carry),
      tiers_(tiers),
      rounding_(setup.spec(), setup.shape().dtype) {}

OwnedStates::Split OwnedStates::split(const StatePiece& piece, StateKind kind, std::int64_t first,
                                      std::int64_t elems) const {
  check(first >= 0 && first + elems <= piece.elems(),
        "states are read and written within their piece");
  check(!carry_.has_deferred(), "states are read and written when no update is deferred");
  Split split{.on_device = array_of(setup_.shape(), store_, piece.group, kind),
              .begin = piece.owned_begin + first};
  const std::int64_t there = split.on_device.defined() ? split.on_device.numel() : 0;
  split.near = std::clamp<std::int64_t>(there - split.begin, 0, elems);
  split.off_begin = split.begin + split.near - there;
  return split;
}

void OwnedStates::read(const StatePiece& piece, StateKind kind, std::int64_t first,
                       std::span<float> values) {
  const Split at = split(piece, kind, first, std::ssize(values));
  const auto near = static_cast<std::size_t>(at.near);
  if (near > 0) {
    to_host(at.on_device.narrow(0, at.begin, at.near), values.first(near));
    if (kind == StateKind::kMaster) add_low(piece.group, at.begin, values.first(near));
  }
  if (near < values.size()) {
    tiers_->read_state(piece.group, kind, at.off_begin, values.subspan(near));
  }
}

void OwnedStates::write(const StatePiece& piece, StateKind kind, std::int64_t first,
                        std::span<const float> values) {
  const Split at = split(piece, kind, first, std::ssize(values));
  if (kind == StateKind::kMaster) {
    rounding_.look_at(piece.group, values);
    set_master(piece.group, at.begin, tensor_of(values));
    return;
  }
  const auto near = static_cast<std::size_t>(at.near);
  if (near > 0) {
    round_to(at.on_device.narrow(0, at.begin, at.near), tensor_of(values.first(near)));
  }
  if (near < values.size()) {
    tiers_->write_moment(piece.group, kind, at.off_begin, values.subspan(near));
  }
}

void OwnedStates::add_low(int group, std::int64_t begin, std::span<float> values) const {
  const at::Tensor& remainders = store_.group(group).remainders;
  if (!remainders.defined()) return;
  const at::Tensor low = remainders.narrow(0, begin, std::ssize(values)).to(c10::DeviceType::CPU);
  add_remainders(values.data(), static_cast<const std::uint16_t*>(host_bytes(low)), low.numel());
}

at::Tensor OwnedStates::master(int group) const {
  const at::Tensor owned =
      empty_tensor({owned_elems(setup_.shape(), group)}, c10::ScalarType::Float);
  const at::Tensor here = array_of(setup_.shape(), store_, group, StateKind::kMaster);
  if (here.defined()) {
    owned.narrow(0, 0, here.numel()).copy_(here);
    add_low(group, 0, span_of(owned).first(static_cast<std::size_t>(here.numel())));
  }
  if (tiers_ != nullptr) tiers_->read_master(group, span_of(owned));
  return owned;
}

void OwnedStates::set_master(int group, std::int64_t begin, const at::Tensor& values) {
  if (setup_.shape().dtype == DType::kBFloat16) {
    leave_ties(host_data<float>(values), values.numel());
  }
  store_.write_master(group, begin, values);
  if (tiers_ != nullptr) tiers_->write_master(group, begin, span_of(values));
  carry_.parameters_changed(group);
}

void OwnedStates::restore_from_image(int group, std::int64_t begin, std::int64_t elems) {
  if (parameter_tier(setup_.shape(), group) == Tier::kNvme) return;
  const at::Tensor values = empty_tensor({elems}, c10::ScalarType::Float);
  tiers_->read_state(group, StateKind::kMaster, begin, span_of(values));
  store_.write_master(group, begin, values);
  tiers_->fill_params(group, begin, span_of(values));
}

}  // namespace sluice
