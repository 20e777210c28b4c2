#include "runtime/program/step_writer.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"
#include "runtime/program/arena_plan.hpp"
#include "runtime/program/grad_flow.hpp"
#include "runtime/program/input_flow.hpp"
#include "runtime/program/param_window.hpp"
#include "runtime/program/persistent_bytes.hpp"
#include "runtime/program/program_builder.hpp"
#include "runtime/program/update_flow.hpp"

namespace sluice {
namespace {

enum class Kind { kTrain, kEvaluate, kDecode };

// The order of a step: micro-batch by micro-batch, or unit by unit.
std::vector<Use> list_uses(const StepShape& shape, bool training) {
  const int head = static_cast<int>(shape.units.size()) - 1;
  const int micro_batches = training ? shape.micro_batches : 1;
  const int at_once = shape.layer_major ? micro_batches : 1;
  std::vector<Use> uses;
  int visit = 0;
  const auto visit_unit = [&](OpKind kind, int unit, int first) {
    for (int m = first; m < first + at_once; ++m) uses.push_back({kind, unit, m, visit});
    ++visit;
  };
  for (int m = 0; m < micro_batches; m += at_once) {
    for (int u = 0; u < head; ++u) visit_unit(OpKind::kForward, u, m);
    visit_unit(OpKind::kLossHead, head, m);
    for (int u = head - 1; training && u >= 0; --u) visit_unit(OpKind::kBackward, u, m);
  }
  return uses;
}

// Uses after the last loss head.
std::size_t backwards_at_end(const std::vector<Use>& uses) {
  const auto head = std::find_if(uses.rbegin(), uses.rend(),
                                 [](const Use& use) { return use.kind == OpKind::kLossHead; });
  return static_cast<std::size_t>(head - uses.rbegin());
}

class StepWriter {
 public:
  StepWriter(const StepShape& shape, Kind kind)
      : shape_(shape),
        kind_(kind),
        training_(kind == Kind::kTrain),
        uses_(list_uses(shape, training_)),
        updates_(builder_, shape, training_),
        params_(builder_, shape, uses_, updates_),
        grads_(builder_, shape),
        inputs_(builder_, shape, uses_, training_),
        last_backwards_(backwards_at_end(uses_)),
        flights_(static_cast<std::size_t>(shape.micro_batches)) {
    for (Flight& flight : flights_) {
      flight.activation.resize(shape.units.size());
      flight.kept.assign(shape.units.size(), -1);
    }
  }

  Program write() {
    // A program that a rank runs beside others adds nothing to what it holds.
    if (training_ || shape_.frozen) builder_.program().persistent = list_persistent(shape_);
    params_.gather_residents();
    for (std::size_t i = 0; i < uses_.size(); ++i) write_use(i);
    if (training_) write_update();
    assign_arena(builder_.program());
    std::int64_t& arena = builder_.program().arena_bytes;
    if (training_) arena = std::max(arena, shape_.other_arena_bytes);
    builder_.program().ops.shrink_to_fit();
    return std::move(builder_.program());
  }

 private:
  // A micro-batch between its first forward and its last backward.
  struct Flight {
    BufferId batch = -1;
    std::vector<BufferId> activation;  // input of each unit
    std::vector<BufferId> kept;
    BufferId gradient = -1;  // of the activation between the last unit done and the next
  };

  const UnitShape& unit(int u) const { return shape_.units[static_cast<std::size_t>(u)]; }
  Flight& flight(int m) { return flights_[static_cast<std::size_t>(m)]; }

  void write_use(std::size_t i);
  void write_forward(const Use& use, Op op);
  void write_loss_head(const Use& use, Op op);
  void open_caches(Op& op);
  void write_logits(const Use& use, Op op);
  void write_backward(const Use& use, Op op);
  void write_update();

  const StepShape& shape_;
  const Kind kind_;
  const bool training_;
  const std::vector<Use> uses_;
  ProgramBuilder builder_;
  UpdateFlow updates_;
  ParamWindow params_;
  GradFlow grads_;
  InputFlow inputs_;
  const std::size_t last_backwards_;
  std::vector<Flight> flights_;
  std::vector<BufferId> caches_;  // of units, in decoding
};

void StepWriter::write_use(std::size_t i) {
  const Use& use = uses_[i];
  if (use.kind == OpKind::kForward && use.unit == 0) {
    BufferId& batch = flight(use.micro_batch).batch;
    batch = builder_.buffer(Tag::kBatch, shape_.batch_bytes);
    Op load{.kind = OpKind::kLoadBatch, .micro_batch = use.micro_batch, .live = {batch}};
    if (kind_ == Kind::kDecode) open_caches(load);
    builder_.emit(std::move(load));
  }
  Op op{.kind = use.kind, .unit = use.unit, .micro_batch = use.micro_batch};
  params_.enter(i, op);
  inputs_.enter(i, op);
  if (use.kind == OpKind::kForward) {
    write_forward(use, std::move(op));
  } else if (kind_ == Kind::kDecode) {
    write_logits(use, std::move(op));
  } else if (use.kind == OpKind::kLossHead) {
    write_loss_head(use, std::move(op));
  } else {
    const std::size_t left = uses_.size() - i;
    if (left <= last_backwards_) {
      updates_.read_ahead(static_cast<int>(last_backwards_ - left),
                          static_cast<int>(last_backwards_));
    }
    write_backward(use, std::move(op));
  }
  params_.leave(i);
}

void StepWriter::open_caches(Op& op) {
  for (std::size_t u = 0; u < shape_.units.size(); ++u) {
    if (shape_.units[u].memory.cache == 0) continue;
    caches_.push_back(builder_.buffer({.tag = Tag::kKvCache,
                                       .bytes = shape_.units[u].memory.cache,
                                       .in_arena = true,
                                       .unit = static_cast<int>(u)}));
    op.live.push_back(caches_.back());
  }
}

void StepWriter::write_logits(const Use& use, Op op) {
  const Flight& now = flight(use.micro_batch);
  op.flops = unit(use.unit).forward_flops;
  op.workspace_bytes = unit(use.unit).memory.forward_only_peak;
  op.dead_after = caches_;
  op.dead_after.push_back(now.activation[static_cast<std::size_t>(use.unit)]);
  op.dead_after.push_back(now.batch);
  builder_.emit(std::move(op));
}

void StepWriter::write_forward(const Use& use, Op op) {
  const UnitMemory& memory = unit(use.unit).memory;
  Flight& now = flight(use.micro_batch);
  const auto u = static_cast<std::size_t>(use.unit);
  const bool keep = training_ && !shape_.recompute;
  op.save = keep;
  op.flops = unit(use.unit).forward_flops;
  const BufferId output = builder_.buffer({.tag = Tag::kActivations,
                                           .bytes = memory.output,
                                           .unit = use.unit + 1,
                                           .micro_batch = use.micro_batch});
  op.live.push_back(output);
  std::int64_t made = memory.output;
  if (keep && memory.kept > 0) {
    now.kept[u] = builder_.buffer(Tag::kActivations, memory.kept);
    op.live.push_back(now.kept[u]);
    made += memory.kept;
  }
  op.workspace_bytes =
      std::max<std::int64_t>(0, (keep ? memory.forward_peak : memory.forward_only_peak) - made);
  if (!training_ && use.unit > 0) op.dead_after.push_back(now.activation[u]);
  now.activation[u + 1] = output;
  builder_.emit(std::move(op));
  if (use.unit > 0) inputs_.forward_done(use, now.activation[u], now.kept[u]);
}

void StepWriter::write_loss_head(const Use& use, Op op) {
  const UnitMemory& memory = unit(use.unit).memory;
  Flight& now = flight(use.micro_batch);
  op.save = training_;
  op.flops = unit(use.unit).forward_flops * (training_ ? 3 : 1);
  if (training_) grads_.open(op);
  const BufferId scratch = builder_.buffer(Tag::kLossHead, memory.scratch, true);
  op.live.push_back(scratch);
  op.dead_after = {scratch, now.activation[static_cast<std::size_t>(use.unit)]};
  if (training_) {
    now.gradient = builder_.buffer(Tag::kActivationGradients, memory.input_gradient);
    op.live.push_back(now.gradient);
    op.workspace_bytes = std::max<std::int64_t>(0, memory.backward_peak - memory.input_gradient);
  } else {
    op.workspace_bytes = memory.forward_only_peak;
    op.dead_after.push_back(now.batch);
  }
  const OpId id = builder_.emit(std::move(op));
  if (training_) grads_.close(builder_.op(id));
}

void StepWriter::write_backward(const Use& use, Op op) {
  const UnitMemory& memory = unit(use.unit).memory;
  Flight& now = flight(use.micro_batch);
  const auto u = static_cast<std::size_t>(use.unit);
  op.recompute = shape_.recompute;
  op.flops =
      unit(use.unit).forward_flops * (shape_.recompute ? 3 : 2) + unit(use.unit).recomputed_flops;
  grads_.open(op);
  op.dead_after.push_back(now.gradient);
  const BufferId fetched = inputs_.fetched(use);  // input and what was kept
  if (now.kept[u] >= 0 && fetched < 0) op.dead_after.push_back(now.kept[u]);
  now.kept[u] = -1;
  now.gradient = -1;
  if (use.unit > 0) {
    op.dead_after.push_back(fetched >= 0 ? fetched : now.activation[u]);
    now.gradient = builder_.buffer(Tag::kActivationGradients, memory.input_gradient);
    op.live.push_back(now.gradient);
  } else {
    op.dead_after.push_back(now.batch);
  }
  const std::int64_t peak = shape_.recompute ? memory.recompute_peak : memory.backward_peak;
  op.workspace_bytes = std::max<std::int64_t>(0, peak - (use.unit > 0 ? memory.input_gradient : 0));
  const OpId id = builder_.emit(std::move(op));
  grads_.close(builder_.op(id));
}

// What is updated off the device waits for the next step.
void StepWriter::write_update() {
  Op norm{.kind = OpKind::kNormAndScale};
  grads_.finish(norm);
  if (shape_.placement.gradients == Tier::kNvme) updates_.sum_squares(norm, grads_);
  const OpId norm_id = builder_.emit(std::move(norm));
  for (const int g : groups_by_first_use(shape_)) {
    if (device_elems(shape_, g) == 0) continue;
    builder_.emit({.kind = OpKind::kUpdate, .group = g, .waits = {norm_id}});
  }
}

void check_shape(const StepShape& shape) {
  check(shape.units.size() >= 2, "a model has a unit before its loss head");
  check(shape.dp > 0 && shape.micro_batches > 0 && shape.prefetch_units >= 0, "a step's counts");
  check(shape.stage < 2 || shape.reduce_every == ReduceEvery::kMicroBatch,
        "stages 2 and 3 reduce every micro-batch");
  const Placement& p = shape.placement;
  check(p.parameters == Tier::kDevice || shape.stage == 3, "parameters leave in stage 3");
  check(p.gradients == Tier::kDevice || shape.stage >= 2, "gradients leave in stages 2 and 3");
  const bool only_states = p.parameters == Tier::kDevice && p.gradients == Tier::kDevice;
  check(shape.frozen || p.optimizer != Tier::kDevice || only_states,
        "parameters and gradients off the device are updated off it");
  check(p.device_fraction == 0 || only_states, "a share stays only of the states");
}

}  // namespace

Program write_train_step(const StepShape& shape) {
  check_shape(shape);
  check(!shape.frozen, "what is trained is not frozen");
  return StepWriter(shape, Kind::kTrain).write();
}

Program write_eval_step(const StepShape& shape) {
  check_shape(shape);
  return StepWriter(shape, Kind::kEvaluate).write();
}

Program write_decode_step(const StepShape& shape) {
  check_shape(shape);
  return StepWriter(shape, Kind::kDecode).write();
}

Program write_update_step(const StepShape& shape) {
  check_shape(shape);
  ProgramBuilder builder;
  UpdateFlow updates(builder, shape, true);
  Op end{.kind = OpKind::kRelease};
  for (const int g : groups_by_first_use(shape)) {
    updates.advance(g);
    end.waits.insert(end.waits.end(), updates.ready(g).begin(), updates.ready(g).end());
  }
  builder.emit(std::move(end));
  builder.program().ops.shrink_to_fit();
  return std::move(builder.program());
}

}  // namespace sluice
