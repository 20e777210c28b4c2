// Writes what happens to gradients between a backward and the norm. Pure.
//
// A round is what is summed in a group's full gradient buffer before it is reduced: one unit's
// micro-batch, or the whole step where a step reduces once, or all units of the only micro-batch.
// Rounds are cut into buckets, a bucket is reduce-scattered once it is full and added to the
// group's shard. Stages 0 and 1 have one full buffer a group, which the next round waits for;
// stages 2 and 3 give each round a slot, and take it back one batch of reductions later, so that
// these go on under a backward.
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

  // Before a unit's backward (or the loss head): waits for and takes what it writes to.
  void open(Op& op);
  // After it was emitted: sends what is complete; `flushes`: down to the last bucket.
  void close(const Op& op, bool flushes);
  // The next reduction, and so all behind it, waits for this as well.
  void hold_reductions(OpId until) { held_by_ = until; }
  // The norm waits for everything.
  void finish(Op& norm);
  // Groups whose gradients got their last sum since the last call, and the operations after which
  // it is there. Not those with more than one stream, nor those that other ranks add to: they are
  // added up before the norm.
  struct Summed {
    int group = -1;
    std::vector<OpId> by;
  };
  [[nodiscard]] std::vector<Summed> take_summed() { return std::exchange(summed_, {}); }
  // The newest operations on a group's shards off the device.
  [[nodiscard]] std::vector<OpId> stored(int g) const;

 private:
  struct Round {
    int group = -1;
    int stream = 0;
    BufferId slot = -1;        // stages 2 and 3
    int writes = 0;            // so far
    std::int64_t reduced = 0;  // elements of the shard whose reduction was issued
    std::vector<OpId> reductions;
    std::vector<BufferId> staging;  // of buckets that end with it
  };

  // The newest operation on a run of a shard off the device.
  struct Stored {
    OpId op = -1;
    BucketPiece piece;
  };

  [[nodiscard]] bool transient() const { return shape_.stage >= 2; }
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
  int open_micro_batch_ = 0;    // whose gradients the open bucket holds
  std::vector<Round> rounds_;   // by group: the newest
  std::deque<Round> reducing_;  // sent whole, oldest first, not known to be over
  OpId held_by_ = -1;
  OpId newest_reductions_ = 0;  // the first one issued after the last backward that issued any
  std::vector<std::vector<Stored>> stored_;  // by group
  std::vector<Summed> summed_;
};

}  // namespace sluice
