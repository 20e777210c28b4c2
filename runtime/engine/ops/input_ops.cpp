#include "runtime/engine/ops/input_ops.hpp"

#include "base/error.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/engine/tiers/tier_store.hpp"
#include "runtime/model/gpu_path.hpp"

namespace sluice {
namespace {

// Storages of a unit's input, and of what the unit kept for backward.
std::vector<c10::Storage> moving_storages(const Flight& flight, int unit) {
  const auto u = static_cast<std::size_t>(unit);
  std::vector<c10::Storage> storages{flight.inputs[u].storage()};
  const Saved* const saved = flight.saved[u].get();
  if (saved == nullptr) return storages;
  for (const at::Tensor& tensor : saved->tensors()) {
    if (tensor.defined()) storages.push_back(tensor.storage());
  }
  return storages;
}

bool is_input(const Buffer& buffer) {
  return buffer.tier == Tier::kDevice && buffer.tag == Tag::kActivations && buffer.unit >= 0;
}

c10::DataPtr no_memory(const c10::Storage& storage) { return {nullptr, storage.device()}; }

}  // namespace

InputOps::InputOps(const StepParts& parts)
    : setup_(parts.setup),
      run_(parts.run),
      flights_(parts.flights),
      copies_(parts.copies),
      tiers_(parts.tiers) {}

void InputOps::begin_program() {
  moves_.assign(run_.program->ops.size(), {});
  leaving_.clear();
}

void InputOps::bind(BufferId id) {
  const Buffer& buffer = run_.buffer(id);
  if (!is_input(buffer)) return;
  const auto u = static_cast<std::size_t>(buffer.unit);
  Flight& flight = flights_.of(buffer.micro_batch);
  const BufferId before = std::exchange(flight.input_buffers[u], id);
  if (before < 0 || !flight.inputs[u].defined()) return;
  std::vector<c10::DataPtr>& leaving = leaving_[before];
  for (const c10::Storage& storage : moving_storages(flight, buffer.unit)) {
    leaving.push_back(storage.set_data_ptr(no_memory(storage)));
  }
}

bool InputOps::comes_back(const Buffer& buffer, const at::Tensor& input) const {
  return run_.training() && input.defined() && leaving_bytes(setup_.shape(), buffer.unit) > 0;
}

void InputOps::unbind(BufferId id) {
  const Buffer& buffer = run_.buffer(id);
  if (!is_input(buffer) || leaving_.erase(id) > 0) return;
  const auto u = static_cast<std::size_t>(buffer.unit);
  Flight& flight = flights_.of(buffer.micro_batch);
  flight.input_buffers[u] = -1;
  if (!comes_back(buffer, flight.inputs[u])) {  // after backward, the tensor is undefined
    flight.inputs[u].reset();
    return;
  }
  for (const c10::Storage& storage : moving_storages(flight, buffer.unit)) {
    storage.set_data_ptr_noswap(no_memory(storage));
  }
}

void InputOps::enter_move(const Op& op) {
  std::vector<std::pair<DevicePtr, std::int64_t>>& runs = moves_[run_.index_of(op)];
  for (const c10::Storage& storage : moving_storages(flights_.of(op), op.unit)) {
    if (op.kind == OpKind::kFetchInput) {
      storage.set_data_ptr_noswap(
          c10::GetAllocator(storage.device_type())->allocate(storage.nbytes()));
    }
    runs.emplace_back(copies_->address(storage.mutable_data()),
                      static_cast<std::int64_t>(storage.nbytes()));
  }
}

void InputOps::move(const Op& op) {
  const Buffer& there = run_.buffer(op.host_slot);
  std::byte* host = tiers_->host_arena() + there.arena_offset;
  std::int64_t left = there.bytes;
  for (const auto& [device, bytes] : moves_[run_.index_of(op)]) {
    // On a GPU the profile counts the allocator's blocks, which are at least as large as tensors.
    const std::int64_t room = setup_.shape().on_gpu ? cuda_block_bytes(bytes) : bytes;
    left -= room;
    check(left >= 0, "the unit saved more bytes than its profile says");
    if (op.kind == OpKind::kSaveInput) {
      copies_->to_host(host, device, bytes);
    } else {
      copies_->to_device(device, host, bytes);
    }
    host += room;
  }
  check(left == 0, "the unit saved fewer bytes than its profile says");
}

}  // namespace sluice
