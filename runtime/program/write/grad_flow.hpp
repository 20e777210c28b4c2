// Writes the operations on gradients between a backward and the norm. Pure.
//
// A round is the set of gradients that a group's full gradient buffer sums before its reduction.
// With several streams a round is one unit's micro-batch, otherwise all units that write the group:
// in one micro-batch, or in the whole step if a step reduces once. Rounds are cut into buckets. A
// full bucket is reduce-scattered and added to the group's shard. Where full gradients are kept
// (stages 0 and 1, and a rank alone) a group has one full buffer, so the next round waits for the
// reductions. A rank alone that adds up no micro-batches reduces nothing: its full gradients are
// the reduced ones (reduces_in_place). They are in the array that the update reads, or in a slot
// from which they are rounded to it (GroupShape::rounds_gradients). Stages 2 and 3 give each round
// a slot and free the slot one batch of reductions later. Reductions then overlap a backward.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "runtime/program/step_shape.hpp"
#include "runtime/program/write/program_builder.hpp"

namespace sluice {

class GradFlow {
 public:
  GradFlow(ProgramBuilder& builder, const StepShape& shape);

  // Called before a backward, backward of weights or loss head. Opens the gradient buffers that the
  // operation writes, and adds the waits for earlier reductions of these buffers.
  void open(Op& op);
  // Called after operation `id` is emitted. Reduces the full buckets; `flushes`: the open one too.
  void close(OpId id, bool flushes);
  // The next reduction also waits for `until`. Later reductions start after that reduction.
  void hold_reductions(OpId until) { held_by_ = until; }
  // Makes the norm wait for all operations on gradients.
  void finish(Op& norm);
  // Buffers of gradients that die with the last update (GroupShape::passing_gradient_bytes).
  [[nodiscard]] const std::vector<BufferId>& passing() const { return passing_; }
  // Takes the group's buffer out of passing(). -1: there is none.
  [[nodiscard]] BufferId take_passing(int g);
  // A group whose gradients are complete after the operations `by`. Groups with several streams or
  // with replicas are never listed: their gradients are complete only just before the norm.
  struct Summed {
    int group = -1;
    std::vector<OpId> by;
  };
  // The groups that became complete since the last call.
  [[nodiscard]] std::vector<Summed> take_summed() { return std::exchange(summed_, {}); }
  // The newest operations on a group's off-device gradient shards.
  [[nodiscard]] std::vector<OpId> stored(int g) const;

 private:
  struct Round {
    int group = -1;
    int stream = 0;
    BufferId slot = -1;        // where gradients are not kept
    int writes = 0;            // so far
    std::int64_t reduced = 0;  // elements of the shard whose reduction is issued
    std::vector<OpId> reductions;
    std::vector<BufferId> staging;  // of the buckets whose last piece is of this round
  };

  // The newest operation on a run of an off-device shard.
  struct Stored {
    OpId op = -1;
    BucketPiece piece;
  };

  [[nodiscard]] bool transient() const { return !keeps_full_gradients(shape_); }
  [[nodiscard]] int writes_of_round(int g) const;
  void flush(int micro_batch);
  void reduce(const std::vector<BucketPiece>& pieces, int micro_batch);
  [[nodiscard]] std::vector<OpId> stored_under(int bucket) const;
  void note_stored(int bucket, OpId op);
  [[nodiscard]] OpId store(OpId reduction, BufferId reduced, std::vector<BufferId>& staging);
  void retire_group(int g, Op& op);
  void retire(const Round& round, Op& op);
  void start_round(int g, Op& op);
  void add_streams(int g);
  [[nodiscard]] OpId gather_sum(int g);
  void add_replicas(int g, OpId gathered, Op& norm);

  ProgramBuilder& builder_;
  const StepShape& shape_;
  BucketCutter cutter_;
  std::vector<int> streams_;    // by group: gradient_streams()
  int open_micro_batch_ = 0;    // the micro-batch of the open bucket
  std::vector<Round> rounds_;   // by group: the newest
  std::deque<Round> reducing_;  // issued whole, not known to have completed; oldest first
  OpId held_by_ = -1;
  OpId newest_reductions_ = 0;               // first operation of the newest batch of reductions
  std::vector<std::vector<Stored>> stored_;  // by group
  std::vector<BufferId> passing_;
  std::vector<Summed> summed_;
};

}  // namespace sluice
