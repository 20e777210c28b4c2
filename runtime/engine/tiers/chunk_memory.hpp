// Where the parts of a chunk lie while its update runs: in its slot of the ring, or in place where
// an array lives on the host. Thread-safe: everything is constant after the constructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/engine/tiers/off_device_group.hpp"
#include "runtime/program/program.hpp"
#include "runtime/program/step_shape.hpp"
#include "runtime/program/write/chunk_ring.hpp"

namespace sluice {

class ChunkMemory {
 public:
  // All references outlive this.
  ChunkMemory(const ShardStore& store, const StepShape& shape,
              std::span<const OffDeviceGroup> groups)
      : store_(store),
        shape_(shape),
        groups_(groups),
        layout_(chunk_layout(shape)),
        ring_(store.block(StateArray::kRing).data()) {}

  [[nodiscard]] const OffDeviceGroup& group(const Chunk& chunk) const {
    return nth(groups_, chunk.group);
  }
  [[nodiscard]] const ChunkLayout& layout() const { return layout_; }
  // The part of the chunk's slot at this offset of the layout.
  [[nodiscard]] std::byte* slot(const Chunk& chunk, std::int64_t part) const {
    check(chunk.slot >= 0, "the chunk has a slot of the ring");
    return ring_ + chunk.slot * layout_.bytes + part;
  }
  // The chunk's elements of a row: in place `at` of a row on the host, or, for a row on NVMe, at
  // offset `part` of the chunk's slot.
  [[nodiscard]] std::byte* state(const Chunk& chunk, RowId row, std::int64_t part,
                                 At at = At::kCurrent) const;
  [[nodiscard]] float* master(const Chunk& chunk, At at = At::kCurrent) const;
  // REQUIRES: the group keeps remainders in place of master weights.
  [[nodiscard]] std::uint16_t* remainders(const Chunk& chunk, At at = At::kCurrent) const;
  // Of gradient stream 0, in gradient_dtype().
  [[nodiscard]] std::byte* gradients(const Chunk& chunk) const;
  // In the slot. REQUIRES: gradients on NVMe.
  [[nodiscard]] std::byte* gradient_stream(const Chunk& chunk, std::size_t stream) const {
    return slot(chunk, layout_.grads + static_cast<std::int64_t>(stream) * layout_.grad_stride);
  }
  // Where the update writes parameters beside the master weights; null where it writes none.
  [[nodiscard]] std::byte* new_weights(const Chunk& chunk, At at = At::kCurrent) const;
  // The updated parameters: new_weights(), or in fp32 the master weights.
  [[nodiscard]] const std::byte* updated_weights(const Chunk& chunk) const;

 private:
  const ShardStore& store_;
  const StepShape& shape_;
  const std::span<const OffDeviceGroup> groups_;
  const ChunkLayout layout_;
  std::byte* const ring_;
};

}  // namespace sluice
