// Writes the updates of off-device optimizer states. Pure.
//
// An update needs only the gradients and their norm. The update is therefore deferred to the start
// of the next step and overlaps the forward of earlier groups. Every forward reads updated
// parameters, so the result is exact. A group's owned elements are cut into chunks. The states and
// gradients of a chunk are read into a slot of the ring (chunk_ring.hpp), updated there and written
// back, while later chunks are read. Arrays on the host are updated in place.
//
//   ReadStates, ReadGrads | CopyGrads -> Update -> WriteStates, CopyParams | WriteParams
//
// The first unit of a step waits for the first chunks. The last backwards of the previous step
// therefore read states ahead, for as many chunks as the ring has slots.
//
// With placement.speculate some chunks are updated during the backwards (early_updates.hpp).
//
// With placement.image each chunk has two places on NVMe, and every update writes to the place that
// is not current. The states of a step stay whole on NVMe until the next step's states are whole
// and committed. commit() follows the last deferred update of the program and precedes the first
// speculative update, which overwrites the states of the previous commit. A rank may overwrite
// those states only after all ranks have committed newer states. The norm waits for the rank's own
// commit, and so do reductions if the program has speculative updates. A reduced gradient therefore
// proves the commits of all ranks that reduced it. Tensor-parallel ranks reduce no gradients
// together, so they meet (kMeet) after the commit and before the first speculative write.
#pragma once

#include <vector>

#include "base/index.hpp"
#include "runtime/program/step_shape.hpp"
#include "runtime/program/write/chunk_ring.hpp"
#include "runtime/program/write/early_updates.hpp"
#include "runtime/program/write/grad_flow.hpp"
#include "runtime/program/write/program_builder.hpp"

namespace sluice {

class UpdateFlow {
 public:
  // `deferred`: whether the program runs the deferred updates of the previous step.
  UpdateFlow(ProgramBuilder& builder, const StepShape& shape, bool deferred);

  // Issues the updates of group g and of all groups before g (in order of first use), and the reads
  // of the chunks after g.
  void advance(int g);
  // The operations that complete the update of the group's shard. Empty before advance(g).
  [[nodiscard]] const std::vector<OpId>& ready(int g) const { return nth(ready_, g); }
  // Reads states of the first chunks for the next step's updates: the share due before backward
  // `done` of the step's last `backwards`.
  void read_ahead(int done, int backwards);
  // Called before backward `done` of `backwards`. Updates chunks of groups with complete gradients.
  void speculate(const std::vector<GradFlow::Summed>& summed, int done, int backwards);
  // Called after the last backward.
  void end_speculation() { early_.end(); }
  // Called after the last deferred update. The operation that commits all updates; -1: no image.
  OpId commit();
  // Whether reductions must wait for the commit.
  [[nodiscard]] bool overwrites_early() const { return ring_.image() && ring_.speculates(); }
  // Called before a backward. Emits the meeting of all ranks once, if speculative writes need one
  // and the commit has been emitted.
  void meet();
  // Called before a backward and before the norm. With gradients on the host, sums the squares of
  // complete gradients there while backwards run, unless speculative updates use the host then. The
  // norm sums the other groups.
  void sum_squares(const std::vector<GradFlow::Summed>& summed);
  // The norm waits for all sums of squares. With gradients on NVMe, sums them first, through the
  // ring.
  void finish(Op& norm, const GradFlow& grads);

 private:
  void read(int c);
  void update(int c);

  ProgramBuilder& builder_;
  const StepShape& shape_;
  const bool deferred_;
  ChunkRing ring_;
  EarlyUpdates early_;
  int next_read_ = 0;
  int next_update_ = 0;
  int next_ahead_ = 0;
  std::vector<std::vector<OpId>> arrivals_;  // by chunk: waits of its update
  std::vector<std::vector<OpId>> ready_;     // by group
  std::vector<OpId> squares_;                // sums of squares of gradients on the host
  std::vector<OpId> uncommitted_;            // writes of updates to the disk
  OpId commit_ = -1;
  OpId may_overwrite_ = -1;  // completes only after all ranks have committed
};

}  // namespace sluice
