// Writes speculative updates: updates of chunks before the global norm is known
// (placement.speculate).
//
// A chunk is selected if its gradients are complete while the step still has backwards to run. The
// update assumes that the step is not clipped and writes to a second place on the states' tier. If
// the step is not clipped, the second place becomes current, and the chunk's deferred update only
// moves the new parameters to their tier, unless they are there already: 16-bit parameters on the
// device are replaced early too. bf16 parameters on the host, which are part of the master weights
// (keeps_remainders), have a second place there; the deferred update copies them from it. If the
// step is clipped or not finite, the second place is discarded. The deferred update then starts
// from the first place, which is unchanged. A step that is thrown away has no deferred update; the
// engine then makes parameters that were replaced from the first place
// (ChunkUpdates::set_remaking). (GreedySnake's overlap on NVMe and SuperOffload's on the host,
// exact with clipping.)
//
// fp32 parameters on the host are their own master weights, and the step reads whole shards of
// them. Such groups are not selected.
//
// Pure.
#pragma once

#include <vector>

#include "runtime/program/step_shape.hpp"
#include "runtime/program/write/chunk_ring.hpp"
#include "runtime/program/write/grad_flow.hpp"

namespace sluice {

// Whether speculated chunks have second places on the host.
[[nodiscard]] bool has_second_places_on_host(const StepShape& shape);

class EarlyUpdates {
 public:
  EarlyUpdates(ProgramBuilder& builder, const StepShape& shape, ChunkRing& ring);

  // Selects chunks of a group whose gradients are complete. Where not all can be selected, each
  // group gives the same share, its first chunks. So the deferred updates of the next program are
  // spread over its forward, and the forward behind the last of them is short.
  void select(const GradFlow::Summed& summed);
  // Writes the updates of the selected chunks. The writes to the disk wait for `may_overwrite`
  // (-1: for nothing).
  void write(OpId may_overwrite);
  // Called after the last update. Reduces the bytes that the chunks' deferred updates move if the
  // speculative updates are kept.
  void end();
  // The operations that sum the squares of the selected chunks, if gradients are on NVMe.
  [[nodiscard]] std::vector<OpId> sums() const;

 private:
  struct Early {
    int chunk = -1;
    std::vector<OpId> arrivals;  // the update waits for these; first the last gradient sums
    OpId summed = -1;            // sums the gradients' squares, if gradients are on NVMe
  };
  void read_some();
  void read(Early& early);
  void update(const Early& early, OpId may_overwrite);
  OpId emit(OpKind kind, Lane lane, int c, std::vector<OpId> waits, std::int64_t bytes);

  ProgramBuilder& builder_;
  const StepShape& shape_;
  ChunkRing& ring_;
  std::vector<Early> selected_;  // in the order in which their gradients become complete
  std::size_t next_read_ = 0;
  std::size_t next_update_ = 0;
  std::int64_t most_elems_ = 0;   // to select
  std::int64_t elems_ = 0;        // of the groups that may be selected from
  std::int64_t elems_seen_ = 0;   // of those whose gradients are complete
  std::int64_t elems_taken_ = 0;  // of the selected chunks
};

}  // namespace sluice
