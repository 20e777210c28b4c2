#include "runtime/program/step_writer.hpp"

#include <algorithm>
#include <deque>

#include "kernels/base/error.hpp"
#include "runtime/program/arena_plan.hpp"

namespace sluice {
namespace {

// One running of one unit.
struct Use {
  OpKind kind = OpKind::kForward;
  int unit = 0;
  int micro_batch = 0;
};

class StepWriter {
 public:
  StepWriter(const StepShape& shape, bool training)
      : shape_(shape),
        training_(training),
        cutter_(shape.bucket_bytes, shape.dp),
        gather_(shape.groups.size()),
        slot_(shape.groups.size(), -1),
        grads_(shape.groups.size()),
        activation_(shape.units.size()),
        kept_(shape.units.size(), -1) {
    check(shape.units.size() >= 2, "a model has a unit before its loss head");
    check(shape.dp > 0 && shape.micro_batches > 0 && shape.prefetch_units >= 0, "a step's counts");
    check(shape.stage < 2 || shape.reduce_every == ReduceEvery::kMicroBatch,
          "stages 2 and 3 reduce every micro-batch");
  }

  Program write() {
    if (training_) write_persistent();
    gather_residents();
    const std::vector<Use> uses = list_uses();
    for (std::size_t i = 0; i < uses.size(); ++i) write_use(uses, i);
    if (training_) write_update();
    assign_arena(program_);
    return std::move(program_);
  }

 private:
  struct GatherState {
    OpId op = -1;
    bool live = false;
    bool waited = false;
  };
  struct GradState {
    BufferId slot = -1;            // stages 2 and 3
    bool written = false;          // by an earlier unit of this micro-batch
    int remaining = 0;             // units that still add to it in this micro-batch
    std::int64_t reduced = 0;      // elements of the shard whose reduction was issued
    std::vector<OpId> reductions;  // of this micro-batch, not yet waited for
  };

  int last_unit() const { return static_cast<int>(shape_.units.size()) - 1; }
  const UnitShape& unit(int u) const { return shape_.units[static_cast<std::size_t>(u)]; }
  const GroupShape& group(int g) const { return shape_.groups[static_cast<std::size_t>(g)]; }
  GradState& grads(int g) { return grads_[static_cast<std::size_t>(g)]; }
  std::int64_t element_bytes() const { return size_of(shape_.dtype); }
  bool grads_are_transient() const { return shape_.stage >= 2; }

  OpId emit(Op op) {
    program_.ops.push_back(std::move(op));
    return static_cast<OpId>(program_.ops.size()) - 1;
  }
  BufferId buffer(Tag tag, std::int64_t bytes, bool in_arena = false, int group = -1) {
    program_.buffers.push_back({tag, bytes, in_arena, -1, group});
    return static_cast<BufferId>(program_.buffers.size()) - 1;
  }
  void persistent(Tag tag, std::int64_t bytes) {
    if (bytes > 0) program_.persistent.push_back({tag, bytes});
  }

  void write_persistent();
  std::vector<int> groups_by_first_use() const;
  void gather_residents();
  std::vector<Use> list_uses() const;
  std::vector<int> params_of(const Use& use) const;
  OpId emit_gather(int g);
  std::size_t window_end(const std::vector<Use>& uses, std::size_t i) const;
  void prefetch(const std::vector<Use>& uses, std::size_t i);
  void release_after(const std::vector<Use>& uses, std::size_t i);
  void write_use(const std::vector<Use>& uses, std::size_t i);
  void write_forward(const Use& use, Op op);
  void write_loss_head(const Use& use, Op op);
  void write_backward(const Use& use, Op op);
  void begin_micro_batch(int m);
  void open_grads(Op& op);
  void close_grads(const Op& op);
  void reduce(const std::vector<BucketPiece>& pieces, int micro_batch);
  void retire_grads(int g, Op& op);
  void write_update();

  const StepShape& shape_;
  const bool training_;
  Program program_;
  BucketCutter cutter_;
  std::vector<GatherState> gather_;
  std::vector<BufferId> slot_;  // gathered parameters, by group
  std::vector<GradState> grads_;
  std::deque<int> reducing_;    // groups whose gradients are on their way, oldest first
  OpId newest_reductions_ = 0;  // the first one issued after the last backward that issued any
  std::vector<BufferId> activation_;  // input of each unit, of the micro-batch in work
  std::vector<BufferId> kept_;
  BufferId batch_ = -1;
  BufferId gradient_ = -1;  // of the activation between the last unit done and the next
};

void StepWriter::write_persistent() {
  std::int64_t full = 0;
  std::int64_t shard = 0;
  std::int64_t resident = 0;
  std::int64_t sharded_params = 0;  // shards of groups that are not resident
  for (const GroupShape& g : shape_.groups) {
    full += g.elems;
    shard += g.shard_elems;
    (g.resident ? resident : sharded_params) += g.resident ? g.elems : g.shard_elems;
  }
  const std::int64_t owned = shape_.stage == 0 ? full : shard;
  // In fp32 the parameters are their own master weights.
  persistent(Tag::kParameters, (resident + sharded_params) * element_bytes());
  if (shape_.dtype != DType::kFloat32) persistent(Tag::kMaster, owned * 4);
  persistent(Tag::kMoments, owned * 8);
  if (!grads_are_transient()) persistent(Tag::kGradients, full * 4);
  if (has_gradient_shard(shape_)) persistent(Tag::kGradients, shard * 4);
  persistent(Tag::kCommStaging, shape_.comm_staging_bytes);
  persistent(Tag::kParameters, shape_.constant_bytes);
}

std::vector<int> StepWriter::groups_by_first_use() const {
  std::vector<int> order;
  for (const UnitShape& u : shape_.units) {
    for (const int g : u.groups) {
      if (std::find(order.begin(), order.end(), g) == order.end()) order.push_back(g);
    }
  }
  return order;
}

void StepWriter::gather_residents() {
  if (shape_.stage == 0) return;
  for (const int g : groups_by_first_use()) {
    if (group(g).resident) emit_gather(g);
  }
}

OpId StepWriter::emit_gather(int g) {
  Op op{.kind = OpKind::kGather, .lane = Lane::kComm, .group = g};
  op.wire_bytes = (shape_.dp - 1) * group(g).shard_elems * element_bytes();
  if (!group(g).resident) {
    const BufferId slot =
        buffer(Tag::kGatheredParameters, group(g).elems * element_bytes(), true, g);
    slot_[static_cast<std::size_t>(g)] = slot;
    op.live.push_back(slot);
  }
  const OpId id = emit(std::move(op));
  gather_[static_cast<std::size_t>(g)] = {id, true, false};
  return id;
}

std::vector<Use> StepWriter::list_uses() const {
  std::vector<Use> uses;
  for (int m = 0; m < (training_ ? shape_.micro_batches : 1); ++m) {
    for (int u = 0; u < last_unit(); ++u) uses.push_back({OpKind::kForward, u, m});
    uses.push_back({OpKind::kLossHead, last_unit(), m});
    for (int u = last_unit() - 1; training_ && u >= 0; --u) {
      uses.push_back({OpKind::kBackward, u, m});
    }
  }
  return uses;
}

std::vector<int> StepWriter::params_of(const Use& use) const {
  const UnitShape& u = unit(use.unit);
  if (use.kind == OpKind::kBackward && !u.backward_reads_params) return {};
  return u.groups;
}

std::size_t StepWriter::window_end(const std::vector<Use>& uses, std::size_t i) const {
  return std::min(uses.size(), i + 1 + static_cast<std::size_t>(shape_.prefetch_units));
}

void StepWriter::prefetch(const std::vector<Use>& uses, std::size_t i) {
  for (std::size_t j = i; j < window_end(uses, i); ++j) {
    for (const int g : params_of(uses[j])) {
      if (!group(g).resident && !gather_[static_cast<std::size_t>(g)].live) emit_gather(g);
    }
  }
}

// What the next use's window reads stays: let go, it would be gathered again at once.
void StepWriter::release_after(const std::vector<Use>& uses, std::size_t i) {
  for (const int g : params_of(uses[i])) {
    bool needed = group(g).resident;
    for (std::size_t j = i + 1; j < window_end(uses, i + 1) && !needed; ++j) {
      const std::vector<int> params = params_of(uses[j]);
      needed = std::find(params.begin(), params.end(), g) != params.end();
    }
    if (needed) continue;
    emit(
        {.kind = OpKind::kRelease, .group = g, .dead_after = {slot_[static_cast<std::size_t>(g)]}});
    gather_[static_cast<std::size_t>(g)].live = false;
  }
}

void StepWriter::write_use(const std::vector<Use>& uses, std::size_t i) {
  const Use& use = uses[i];
  if (use.kind == OpKind::kForward && use.unit == 0) begin_micro_batch(use.micro_batch);
  prefetch(uses, i);
  Op op{.kind = use.kind, .unit = use.unit, .micro_batch = use.micro_batch};
  op.reads = params_of(use);
  for (const int g : op.reads) {
    GatherState& gather = gather_[static_cast<std::size_t>(g)];
    if (gather.op < 0 || gather.waited) continue;
    op.waits.push_back(gather.op);
    gather.waited = true;
  }
  if (use.kind == OpKind::kForward) {
    write_forward(use, std::move(op));
  } else if (use.kind == OpKind::kLossHead) {
    write_loss_head(use, std::move(op));
  } else {
    write_backward(use, std::move(op));
  }
  release_after(uses, i);
}

void StepWriter::begin_micro_batch(int m) {
  batch_ = buffer(Tag::kBatch, shape_.batch_bytes);
  emit({.kind = OpKind::kLoadBatch, .micro_batch = m, .live = {batch_}});
  for (GradState& state : grads_) {
    state.written = false;
    state.reduced = 0;
    state.remaining = 0;
  }
  for (const UnitShape& u : shape_.units) {
    for (const int g : u.groups) ++grads(g).remaining;
  }
}

void StepWriter::write_forward(const Use& use, Op op) {
  const UnitMemory& memory = unit(use.unit).memory;
  const auto u = static_cast<std::size_t>(use.unit);
  const bool keep = training_ && !shape_.recompute;
  op.save = keep;
  op.flops = unit(use.unit).forward_flops;
  const BufferId output = buffer(Tag::kActivations, memory.output);
  op.live.push_back(output);
  std::int64_t made = memory.output;
  if (keep && memory.kept > 0) {
    kept_[u] = buffer(Tag::kActivations, memory.kept);
    op.live.push_back(kept_[u]);
    made += memory.kept;
  }
  op.workspace_bytes =
      std::max<std::int64_t>(0, (keep ? memory.forward_peak : memory.forward_only_peak) - made);
  if (!training_ && use.unit > 0) op.dead_after.push_back(activation_[u]);
  activation_[u + 1] = output;
  emit(std::move(op));
}

void StepWriter::write_loss_head(const Use& use, Op op) {
  const UnitMemory& memory = unit(use.unit).memory;
  const auto u = static_cast<std::size_t>(use.unit);
  op.save = training_;
  op.flops = unit(use.unit).forward_flops * (training_ ? 3 : 1);
  if (training_) open_grads(op);
  const BufferId scratch = buffer(Tag::kLossHead, memory.scratch, true);
  op.live.push_back(scratch);
  op.dead_after = {scratch, activation_[u]};
  if (training_) {
    gradient_ = buffer(Tag::kActivationGradients, memory.input_gradient);
    op.live.push_back(gradient_);
    op.workspace_bytes = std::max<std::int64_t>(0, memory.backward_peak - memory.input_gradient);
  } else {
    op.workspace_bytes = memory.forward_only_peak;
    op.dead_after.push_back(batch_);
  }
  const OpId id = emit(std::move(op));
  if (training_) close_grads(program_.ops[static_cast<std::size_t>(id)]);
}

void StepWriter::write_backward(const Use& use, Op op) {
  const UnitMemory& memory = unit(use.unit).memory;
  const auto u = static_cast<std::size_t>(use.unit);
  op.recompute = shape_.recompute;
  op.flops = unit(use.unit).forward_flops * (shape_.recompute ? 3 : 2);
  open_grads(op);
  op.dead_after.push_back(gradient_);
  if (kept_[u] >= 0) op.dead_after.push_back(kept_[u]);
  kept_[u] = -1;
  if (use.unit > 0) {
    op.dead_after.push_back(activation_[u]);
    gradient_ = buffer(Tag::kActivationGradients, memory.input_gradient);
    op.live.push_back(gradient_);
  } else {
    op.dead_after.push_back(batch_);
    gradient_ = -1;
  }
  const std::int64_t peak = shape_.recompute ? memory.recompute_peak : memory.backward_peak;
  op.workspace_bytes = std::max<std::int64_t>(0, peak - (use.unit > 0 ? memory.input_gradient : 0));
  const OpId id = emit(std::move(op));
  close_grads(program_.ops[static_cast<std::size_t>(id)]);
}

// Gradients the operation is the first to write: stages 0 and 1 wait until the last micro-batch's
// reduction has read the buffer; stages 2 and 3 take a slot, and first take back those whose
// reduction is not of the newest batch, which goes on under this operation (the loss head takes all
// back: a whole forward has passed since they were sent).
void StepWriter::open_grads(Op& op) {
  op.accumulate = shape_.reduce_every == ReduceEvery::kStep && op.micro_batch > 0;
  op.writes = unit(op.unit).groups;
  for (const int g : op.writes) {
    if (!grads(g).written) retire_grads(g, op);
  }
  while (grads_are_transient() && !reducing_.empty() &&
         (op.kind == OpKind::kLossHead ||
          grads(reducing_.front()).reductions.back() < newest_reductions_)) {
    retire_grads(reducing_.front(), op);
  }
  for (const int g : unit(op.unit).groups) {
    GradState& state = grads(g);
    if (state.written) continue;
    state.written = true;
    if (!grads_are_transient()) continue;
    state.slot = buffer(Tag::kGradientBuckets, group(g).elems * 4, true, g);
    op.live.push_back(state.slot);
  }
}

void StepWriter::retire_grads(int g, Op& op) {
  GradState& state = grads(g);
  for (const OpId reduction : state.reductions) op.waits.push_back(reduction);
  state.reductions.clear();
  if (state.slot >= 0) op.dead_before.push_back(state.slot);
  state.slot = -1;
  std::erase(reducing_, g);
}

void StepWriter::close_grads(const Op& op) {
  const int m = op.micro_batch;
  const int u = op.unit;
  const bool last_micro_batch = m + 1 == shape_.micro_batches;
  const auto next = static_cast<OpId>(program_.ops.size());
  if (shape_.reduce_every == ReduceEvery::kMicroBatch || last_micro_batch) {
    for (const int g : unit(u).groups) {
      if (--grads(g).remaining > 0) continue;
      for (const auto& bucket : cutter_.add(g, group(g).shard_elems)) reduce(bucket, m);
    }
  }
  const std::vector<BucketPiece> rest = u == 0 ? cutter_.flush() : std::vector<BucketPiece>{};
  if (!rest.empty()) reduce(rest, m);
  if (static_cast<OpId>(program_.ops.size()) > next) newest_reductions_ = next;
}

void StepWriter::reduce(const std::vector<BucketPiece>& pieces, int micro_batch) {
  const auto bucket = static_cast<int>(program_.buckets.size());
  program_.buckets.push_back(pieces);
  Op op{.kind = OpKind::kReduceGrads, .lane = Lane::kComm, .micro_batch = micro_batch};
  op.bucket = bucket;
  op.accumulate = shape_.reduce_every == ReduceEvery::kMicroBatch && micro_batch > 0;
  for (const BucketPiece& piece : pieces) op.wire_bytes += (shape_.dp - 1) * piece.elems * 4;
  Op gather = op;
  OpId last = emit(std::move(op));
  if (shape_.stage == 0 && micro_batch + 1 == shape_.micro_batches) {
    gather.kind = OpKind::kGatherGrads;
    gather.accumulate = false;
    last = emit(std::move(gather));
  }
  for (const BucketPiece& piece : pieces) {
    GradState& state = grads(piece.group);
    state.reductions.push_back(last);
    state.reduced += piece.elems;
    if (state.reduced == group(piece.group).shard_elems) reducing_.push_back(piece.group);
  }
}

void StepWriter::write_update() {
  Op norm{.kind = OpKind::kNormAndScale};
  for (int g = 0; g < static_cast<int>(shape_.groups.size()); ++g) retire_grads(g, norm);
  const OpId norm_id = emit(std::move(norm));
  for (const int g : groups_by_first_use()) {
    emit({.kind = OpKind::kUpdate, .group = g, .waits = {norm_id}});
  }
}

}  // namespace

Program write_train_step(const StepShape& shape) { return StepWriter(shape, true).write(); }

Program write_eval_step(const StepShape& shape) { return StepWriter(shape, false).write(); }

}  // namespace sluice
