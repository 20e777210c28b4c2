// The chunks of a program's updates, and the ring of slots on the host through which they pass.
#pragma once

#include <array>
#include <vector>

#include "base/index.hpp"
#include "runtime/program/step_shape.hpp"
#include "runtime/program/write/program_builder.hpp"

namespace sluice {

class ChunkRing {
 public:
  // Cuts the owned elements that are updated off-device into chunks. Groups come in the order of
  // their first use.
  ChunkRing(ProgramBuilder& builder, const StepShape& shape);

  [[nodiscard]] int size() const { return static_cast<int>(written_.size()); }
  [[nodiscard]] const Chunk& chunk(int c) const;
  // The number of chunks with a slot before this one. As many as there are slots follow each other
  // without sharing one.
  [[nodiscard]] int turn(int c) const { return nth(turns_, c); }
  // The first chunk of the group, and one past its last.
  [[nodiscard]] int begin_of(int group) const { return nth(begins_, group); }
  [[nodiscard]] int end_of(int group) const { return nth(ends_, group); }
  // Whether the program may contain speculative updates: states off-device have them.
  [[nodiscard]] bool speculates() const {
    return shape_.placement.speculate && shape_.placement.optimizer != Tier::kDevice;
  }
  // Whether states are on NVMe: of all chunks but those whose group's are on the host.
  [[nodiscard]] bool on_disk() const { return shape_.placement.optimizer == Tier::kNvme; }
  [[nodiscard]] bool on_disk(int c) const { return chunk(c).on_disk; }
  [[nodiscard]] bool image() const { return builder_.program().image; }

  // Bytes of the chunk's states, and of one of its gradient streams, off the device.
  [[nodiscard]] std::int64_t state_bytes(int c) const;
  [[nodiscard]] std::int64_t gradient_bytes(int c) const;

  OpId emit(OpKind kind, Lane lane, int c, std::vector<OpId> waits, std::int64_t bytes);
  // The newest operations on each of the two parts of the chunk's slot. A slot's states (with the
  // new weights) and its gradients are filled and emptied independently.
  [[nodiscard]] std::vector<OpId>& state_users(int c);
  [[nodiscard]] std::vector<OpId>& grad_users(int c);
  // Records that `op` writes the chunk's new states: to the disk, or on the host the update itself.
  void note_written(int c, OpId op) { nth(written_, c) = op; }
  // Waits of a second read of the chunk's states in the same program: the users of the slot and the
  // write of the new states.
  [[nodiscard]] std::vector<OpId> waits_of_return(int c);

 private:
  // The chunk's index among the users.
  [[nodiscard]] int place_of(int c) const;

  ProgramBuilder& builder_;
  const StepShape& shape_;
  std::vector<int> begins_;  // by group
  std::vector<int> ends_;
  std::vector<int> turns_;                      // by chunk
  std::vector<OpId> written_;                   // by chunk
  std::vector<std::vector<OpId>> state_users_;  // by slot; then by chunk, of those without a slot
  std::vector<std::vector<OpId>> grad_users_;
};

// Byte offsets of a chunk's parts in a slot of the ring; -1: the part is not in the ring.
struct ChunkLayout {
  std::int64_t master = -1;
  std::array<std::int64_t, kMostMoments> moments{-1, -1};
  std::int64_t weights = -1;  // 16-bit
  std::int64_t grads = -1;    // one part per gradient stream, grad_stride bytes apart
  std::int64_t grad_stride = 0;
  std::int64_t bytes = 0;
};
[[nodiscard]] ChunkLayout chunk_layout(const StepShape& shape);

[[nodiscard]] std::vector<SecondPlace> second_places(std::span<const Chunk> chunks);

}  // namespace sluice
