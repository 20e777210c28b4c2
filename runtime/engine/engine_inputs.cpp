// Activations that leave the device between forward and backward: tensors stay, without memory, so
// that views of them and their shapes are whole again when it comes back.
#include <utility>

#include "base/error.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {
namespace {

// Storages that leave and come back: of a unit's input, and of what it kept for backward.
std::vector<c10::Storage> travelling(const at::Tensor& input, const Saved* saved) {
  std::vector<c10::Storage> storages{input.storage()};
  if (saved == nullptr) return storages;
  for (const at::Tensor& tensor : saved->tensors()) {
    if (tensor.defined()) storages.push_back(tensor.storage());
  }
  return storages;
}

bool is_input(const Buffer& buffer) {
  return buffer.tier == Tier::kDevice && buffer.tag == Tag::kActivations && buffer.unit >= 0;
}

}  // namespace

// Between pipeline stages an input may be on its way back before it is known to have left: what is
// still being read then keeps its memory until its buffer dies.
void Engine::bind_input(BufferId id) {
  const Buffer& buffer = program_->buffers[static_cast<std::size_t>(id)];
  if (!is_input(buffer)) return;
  const auto u = static_cast<std::size_t>(buffer.unit);
  Flight& now = flights_[static_cast<std::size_t>(buffer.micro_batch)];
  const BufferId before = std::exchange(now.input_buffers[u], id);
  if (before < 0 || !now.inputs[u].defined()) return;
  std::vector<c10::DataPtr>& leaving = leaving_[before];
  for (const c10::Storage& storage : travelling(now.inputs[u], now.saved[u].get())) {
    leaving.push_back(storage.set_data_ptr(c10::DataPtr(nullptr, storage.device())));
  }
}

// Before backward the memory goes and the tensors stay. After it there is nothing to come back.
void Engine::unbind_input(BufferId id) {
  const Buffer& buffer = program_->buffers[static_cast<std::size_t>(id)];
  if (!is_input(buffer) || leaving_.erase(id) > 0) return;
  const auto u = static_cast<std::size_t>(buffer.unit);
  Flight& now = flights_[static_cast<std::size_t>(buffer.micro_batch)];
  now.input_buffers[u] = -1;
  at::Tensor& input = now.inputs[u];
  const bool returns = training() && input.defined() && leaving_bytes(plan_.shape, buffer.unit) > 0;
  if (!returns) {
    input.reset();
    return;
  }
  for (const c10::Storage& storage : travelling(input, now.saved[u].get())) {
    storage.set_data_ptr_noswap(c10::DataPtr(nullptr, storage.device()));
  }
}

// On the engine's thread; the copy's thread works on the addresses of now.
void Engine::prepare_move(const Op& op) {
  const auto u = static_cast<std::size_t>(op.unit);
  const Flight& now = flight(op);
  std::vector<std::pair<DevicePtr, std::int64_t>>& runs = moves_[index_of(op)];
  for (const c10::Storage& storage : travelling(now.inputs[u], now.saved[u].get())) {
    if (op.kind == OpKind::kFetchInput) {
      storage.set_data_ptr_noswap(
          c10::GetAllocator(storage.device_type())->allocate(storage.nbytes()));
    }
    runs.emplace_back(copies_->address(storage.mutable_data()),
                      static_cast<std::int64_t>(storage.nbytes()));
  }
}

void Engine::move_input(const Op& op) {
  const Buffer& there = program_->buffers[static_cast<std::size_t>(op.host_slot)];
  std::byte* host = tiers_->host_arena() + there.arena_offset;
  std::int64_t left = there.bytes;
  for (const auto& [device, bytes] : moves_[index_of(op)]) {
    left -= bytes;
    check(left >= 0, "what a unit keeps is what its profile said");
    if (op.kind == OpKind::kSaveInput) {
      copies_->to_host(host, device, bytes);
    } else {
      copies_->to_device(device, host, bytes);
    }
    host += bytes;
  }
  check(left == 0, "all that a unit keeps travels");
}

}  // namespace sluice
