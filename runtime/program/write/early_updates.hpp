// Updates of chunks before the norm of their gradients is known (placement.speculate).
//
// A chunk whose gradients have their last sum while backwards are left is updated as if the step
// were not clipped, into a second place on NVMe. If the step is not clipped, the second place is
// the chunk's place from then on, and the chunk's update in the next program only moves the new
// parameters to their tier. If the step is clipped or not finite, the second place is forgotten and
// the next program updates the chunk from its first place, which has not changed. (facts:
// GreedySnake's overlap, exact with clipping.)
//
// Pure.
#pragma once

#include <vector>

#include "runtime/program/step_shape.hpp"
#include "runtime/program/write/chunk_ring.hpp"
#include "runtime/program/write/grad_flow.hpp"

namespace sluice {

class EarlyUpdates {
 public:
  EarlyUpdates(ProgramBuilder& builder, const StepShape& shape, ChunkRing& ring);

  // Selects chunks of a group whose gradients have had their last sum.
  void select(const GradFlow::Summed& summed);
  // Writes the updates of the selected chunks. `may_overwrite`: what writes to the disk wait for;
  // -1: nothing.
  void write(OpId may_overwrite);
  // After the last update: the deferred updates of these chunks move less if the early ones are
  // kept.
  void end();
  // Where gradients are on NVMe: the operations that summed the squares of the early chunks.
  [[nodiscard]] std::vector<OpId> sums() const;

 private:
  struct Early {
    int chunk = -1;
    std::vector<OpId> arrivals;  // at first the last sums of its gradients
    OpId summed = -1;            // the sum of its squares, where gradients are on NVMe
  };
  void read_some();
  void read(Early& early);
  void update(const Early& early, OpId may_overwrite);
  OpId emit(OpKind kind, Lane lane, int c, std::vector<OpId> waits, std::int64_t bytes);

  ProgramBuilder& builder_;
  const StepShape& shape_;
  ChunkRing& ring_;
  std::vector<Early> selected_;  // in the order in which their gradients come
  std::size_t next_read_ = 0;
  std::size_t next_update_ = 0;
  std::int64_t elems_left_ = 0;
};

}  // namespace sluice
