// Writes the updates of optimizer states that live off the device. Pure.
//
// They come at the start of the step after: the norm is all an update needs, so each runs while
// that step's forward is on its way to the group (exact, no staleness). A group's owned elements
// are cut into chunks; a chunk's states and gradients are brought into a slot of a ring on the
// host, updated there, and taken back, while the chunks behind it are on their way in.
//
//   ReadStates, ReadGrads | CopyGrads -> Update -> WriteStates, CopyParams | WriteParams
//
// The first chunks have nothing to hide behind there: the first unit waits for them. So as many as
// the ring has slots are read ahead, under the last backward of the step before, and are in their
// slots when the program begins that updates them.
//
// Where placement.speculate says so, chunks whose gradients have their last sum while backwards are
// left are updated then, as if the step was not clipped, into a second place on NVMe. If it was
// not, that place is the chunk's from then on, and of its update in the next program only the way
// of the new parameters to theirs is left. If it was clipped, or not finite, the second place is
// forgotten and the update runs as ever: the first one is as it was. (facts: GreedySnake's overlap,
// exact with clipping.)
//
// Where placement.image says so, each chunk has a second place, and every update writes to the one
// that is not current: so the states of a step are whole on NVMe until those of the next one are,
// and are committed. commit() comes after the last of the program's deferred updates and before the
// first early one, which writes over what was committed before it. No rank may do that while
// another one has nothing newer: reductions, where there are early updates, and the norm wait for
// the rank's own commit, so a reduced gradient tells a rank that all ranks that reduced it have
// committed. Tensor-parallel ranks reduce no gradients together: they meet (kMeet) after the commit
// and before the first early write.
//
// What lives on the host anyway is worked on in place.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "runtime/program/step_shape.hpp"
#include "runtime/program/write/grad_flow.hpp"
#include "runtime/program/write/program_builder.hpp"

namespace sluice {

class UpdateFlow {
 public:
  // Cuts the chunks. `deferred`: whether the program updates at all.
  UpdateFlow(ProgramBuilder& builder, const StepShape& shape, bool deferred);

  // Issues the group's updates, those of all groups before it (in order of first use), and the
  // reads of chunks behind it.
  void advance(int g);
  // After which operations the group's shard, on its tier, is the updated one. Empty before
  // advance(g).
  [[nodiscard]] const std::vector<OpId>& ready(int g) const {
    return ready_[static_cast<std::size_t>(g)];
  }
  // Reads the first chunks' states for the next step's updates: the share that is due before
  // backward `done` of `backwards`, the step's last ones.
  void read_ahead(int done, int backwards);
  // Before backward `done` of `backwards`: updates chunks of groups whose gradients have had their
  // last sum by now.
  void speculate(const std::vector<GradFlow::Summed>& summed, int done, int backwards);
  // After the last one.
  void end_speculation();
  // After the last deferred update: the operation that commits them all; -1: there is no image.
  OpId commit();
  // Whether reductions, too, have to come after it.
  [[nodiscard]] bool overwrites_early() const { return image() && speculates(); }
  // Before a backward: writes the meeting of all ranks where early writes need one and the commit
  // has been written. Once a program.
  void meet();
  // Reads all gradients through the ring, for their norm; the norm waits.
  void sum_squares(Op& norm, const GradFlow& grads);

 private:
  [[nodiscard]] const Chunk& chunk(int c) const;
  // For what reads a chunk's states after its update of the same program: who has the slot, and the
  // states' own way to the disk.
  [[nodiscard]] std::vector<OpId> waits_of_return(int c);
  void read(int c);
  void update(int c);
  [[nodiscard]] bool speculates() const {
    return shape_.placement.speculate && shape_.placement.optimizer == Tier::kNvme;
  }
  [[nodiscard]] bool image() const { return builder_.program().image; }
  // Chunks to be updated before the norm, in the order their gradients come.
  struct Guess {
    int chunk = -1;
    std::vector<OpId> arrivals;  // at first its gradients' last sums
    OpId summed = -1;            // its squares, where gradients are on NVMe
  };
  void guess(const GradFlow::Summed& summed);
  void read_guesses();
  void update_guess(const Guess& guess);
  OpId emit_guess(OpKind kind, Lane lane, int c, std::vector<OpId> waits, std::int64_t bytes);
  OpId emit(OpKind kind, Lane lane, int c, std::vector<OpId> waits, std::int64_t bytes);
  // A slot has two parts that come and go apart: states with new weights, and gradients.
  [[nodiscard]] std::vector<OpId>& state_users(int c);
  [[nodiscard]] std::vector<OpId>& grad_users(int c);

  ProgramBuilder& builder_;
  const StepShape& shape_;
  const bool deferred_;
  std::vector<int> last_chunk_;  // by group: one past its last
  int next_read_ = 0;
  int next_update_ = 0;
  int next_ahead_ = 0;
  std::vector<Guess> guesses_;
  std::size_t next_guess_read_ = 0;
  std::size_t next_guess_ = 0;
  std::int64_t guess_elems_left_ = 0;
  std::vector<std::vector<OpId>> arrivals_;  // by chunk: what its update waits for
  std::vector<OpId> written_;                // by chunk: its states, back to the disk
  std::vector<OpId> uncommitted_;            // everything that updates write to the disk
  OpId commit_ = -1;
  OpId may_overwrite_ = -1;                     // has completed: all ranks have committed
  std::vector<std::vector<OpId>> state_users_;  // by slot: the last operations on it
  std::vector<std::vector<OpId>> grad_users_;
  std::vector<std::vector<OpId>> ready_;  // by group
};

// Offsets of a chunk's parts in a slot of the ring, bytes; -1: not in the ring.
struct ChunkLayout {
  std::int64_t master = -1;
  std::array<std::int64_t, kMostMoments> moments{-1, -1};
  std::int64_t weights = -1;  // 16 bits
  std::int64_t grads = -1;    // a part for each stream
  std::int64_t grad_stride = 0;
  std::int64_t bytes = 0;
};
[[nodiscard]] ChunkLayout chunk_layout(const StepShape& shape);

[[nodiscard]] std::vector<SecondPlace> second_places(std::span<const Chunk> chunks);

}  // namespace sluice
