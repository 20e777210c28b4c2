// Writes the updates of optimizer states that live off the device. Pure.
//
// An update needs nothing but the gradients and their norm, so it runs at the start of the next
// step, while the next forward proceeds towards its group. Every forward reads updated parameters:
// the result is exact. A group's owned elements are cut into chunks. The states and gradients of a
// chunk are read into a slot of a ring on the host (chunk_ring.hpp), updated there and written
// back, while later chunks are being read. Arrays that live on the host are updated in place.
//
//   ReadStates, ReadGrads | CopyGrads -> Update -> WriteStates, CopyParams | WriteParams
//
// The first unit of a step waits for the first chunks. As many chunks as the ring has slots are
// therefore read ahead, during the last backwards of the step before.
//
// With placement.speculate some chunks are updated during the backwards (early_updates.hpp).
//
// With placement.image each chunk has two places on NVMe, and every update writes to the place that
// is not current. The states of a step stay whole on NVMe until the states of the next step are
// whole and committed. commit() follows the last deferred update of the program and precedes the
// first early update, which overwrites the states of the former commit. A rank may overwrite them
// only when all ranks have committed newer states. Reductions (if there are early updates) and the
// norm wait for the rank's own commit, so a reduced gradient proves the commits of all ranks that
// reduced it. Tensor-parallel ranks reduce no gradients together: they meet (kMeet) after the
// commit and before the first early write.
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
  // `deferred`: whether the program performs the updates of the step before.
  UpdateFlow(ProgramBuilder& builder, const StepShape& shape, bool deferred);

  // Issues the updates of the group and of all groups before it (in order of first use), and reads
  // of the chunks after it.
  void advance(int g);
  // The operations after which the group's shard is updated, on its tier. Empty before advance(g).
  [[nodiscard]] const std::vector<OpId>& ready(int g) const { return nth(ready_, g); }
  // Reads states of the first chunks for the next step's updates: the share that is due before
  // backward `done` of the last `backwards` of the step.
  void read_ahead(int done, int backwards);
  // Before backward `done` of `backwards`: updates chunks of groups whose gradients have had their
  // last sum.
  void speculate(const std::vector<GradFlow::Summed>& summed, int done, int backwards);
  // After the last backward.
  void end_speculation() { early_.end(); }
  // After the last deferred update: the operation that commits all updates; -1 without an image.
  OpId commit();
  // Whether reductions have to wait for the commit.
  [[nodiscard]] bool overwrites_early() const { return ring_.image() && ring_.speculates(); }
  // Before a backward: writes the meeting of all ranks if early writes need one and the commit has
  // been written. Once a program.
  void meet();
  // Reads all gradients through the ring for their norm, which waits for them.
  void sum_squares(Op& norm, const GradFlow& grads);

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
  std::vector<std::vector<OpId>> arrivals_;  // by chunk: its update waits for these
  std::vector<std::vector<OpId>> ready_;     // by group
  std::vector<OpId> uncommitted_;            // writes of updates to the disk
  OpId commit_ = -1;
  OpId may_overwrite_ = -1;  // when it has completed, all ranks have committed
};

}  // namespace sluice
