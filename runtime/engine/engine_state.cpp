// The engine's states as pieces of global parameters: what a checkpoint reads and writes.
#include <algorithm>

#include "base/error.hpp"
#include "kernels/cpu/cast.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

const at::Tensor& on_device(const GroupState& group, StateKind kind) {
  return kind == StateKind::kMaster    ? group.master
         : kind == StateKind::kMoment1 ? group.moment1
                                       : group.moment2;
}

// A tensor over the caller's elements would need from_blob; these are copied once more instead.
void to_host(const at::Tensor& from, std::span<float> values) {
  const at::Tensor here = from.is_cpu() ? from : from.to(c10::DeviceType::CPU);
  convert(values.data(), DType::kFloat32, host_data<float>(here), DType::kFloat32, here.numel());
}

at::Tensor tensor_of(std::span<const float> values) {
  const at::Tensor tensor =
      empty_tensor({static_cast<std::int64_t>(values.size())}, c10::ScalarType::Float);
  std::copy(values.begin(), values.end(), host_data<float>(tensor));
  return tensor;
}

}  // namespace

void Engine::settle() { finish_updates(); }

std::vector<StatePiece> Engine::owned_pieces() const {
  return sluice::owned_pieces(model_.spec, plan_, data_.rank());
}

std::vector<StatePiece> Engine::saved_pieces() const {
  return sluice::saved_pieces(model_.spec, plan_, data_.rank());
}

void Engine::read_state(const StatePiece& piece, StateKind kind, std::int64_t first,
                        std::span<float> values) {
  const auto elems = static_cast<std::int64_t>(values.size());
  check(first >= 0 && first + elems <= piece.elems(), "a read of states is within its piece");
  check(!pending_, "states are read when no update is left to the next step");
  const std::int64_t begin = piece.owned_begin + first;
  const at::Tensor& here = on_device(store_.group(piece.group), kind);
  const std::int64_t there = here.defined() ? here.numel() : 0;
  const std::int64_t near = std::clamp<std::int64_t>(there - begin, 0, elems);
  if (near > 0) {
    to_host(here.narrow(0, begin, near), values.first(static_cast<std::size_t>(near)));
  }
  if (near < elems) {
    tiers_->read_state(piece.group, kind, begin + near - there,
                       values.subspan(static_cast<std::size_t>(near)));
  }
}

void Engine::write_state(const StatePiece& piece, StateKind kind, std::int64_t first,
                         std::span<const float> values) {
  const auto elems = static_cast<std::int64_t>(values.size());
  check(first >= 0 && first + elems <= piece.elems(), "a write of states is within its piece");
  check(!pending_, "states are written when no update is left to the next step");
  const std::int64_t begin = piece.owned_begin + first;
  if (kind == StateKind::kMaster) {
    write_owned(piece.group, begin, tensor_of(values));
    store_.group(piece.group).fresh = plan_.shape.stage == 0;
    return;
  }
  const at::Tensor& here = on_device(store_.group(piece.group), kind);
  const std::int64_t there = here.defined() ? here.numel() : 0;
  const std::int64_t near = std::clamp<std::int64_t>(there - begin, 0, elems);
  if (near > 0) {
    here.narrow(0, begin, near).copy_(tensor_of(values.first(static_cast<std::size_t>(near))));
  }
  if (near < elems) {
    tiers_->write_state(piece.group, kind, begin + near - there,
                        values.subspan(static_cast<std::size_t>(near)));
  }
}

}  // namespace sluice
