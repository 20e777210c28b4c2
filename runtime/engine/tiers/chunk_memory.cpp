#include "runtime/engine/tiers/chunk_memory.hpp"

namespace sluice {

std::byte* ChunkMemory::state(const Chunk& chunk, RowId row, std::int64_t part, At at) const {
  if (store_.on_nvme(row)) return slot(chunk, part);
  return store_.host(row, chunk.begin - store_.row(row).first, at);
}

float* ChunkMemory::master(const Chunk& chunk, At at) const {
  return reinterpret_cast<float*>(state(chunk, group(chunk).master, layout_.master, at));
}

std::uint16_t* ChunkMemory::remainders(const Chunk& chunk, At at) const {
  return reinterpret_cast<std::uint16_t*>(
      state(chunk, group(chunk).remainders, layout_.master, at));
}

std::byte* ChunkMemory::gradients(const Chunk& chunk) const {
  if (shape_.placement.gradients != Tier::kHost) return slot(chunk, layout_.grads);
  return store_.host(group(chunk).grads[0], chunk.begin);
}

std::byte* ChunkMemory::new_weights(const Chunk& chunk, At at) const {
  if (params_are_master(shape_, chunk.group)) return nullptr;
  const RowId params = group(chunk).params;
  if (params >= 0 && !store_.on_nvme(params)) {
    return store_.host(params, chunk.begin, at);
  }
  return shape_.dtype == DType::kFloat32 ? nullptr : slot(chunk, layout_.weights);
}

const std::byte* ChunkMemory::updated_weights(const Chunk& chunk) const {
  const std::byte* const weights = new_weights(chunk);
  return weights != nullptr ? weights : reinterpret_cast<const std::byte*>(master(chunk));
}

}  // namespace sluice
