#include "runtime/program/write/step_form.hpp"

#include <algorithm>
#include <utility>

#include "base/index.hpp"
#include "runtime/program/write/arena_plan.hpp"
#include "runtime/program/write/device_updates.hpp"
#include "runtime/program/write/flight_buffers.hpp"
#include "runtime/program/write/grad_flow.hpp"
#include "runtime/program/write/input_flow.hpp"
#include "runtime/program/write/param_window.hpp"
#include "runtime/program/write/pipe_flow.hpp"
#include "runtime/program/write/program_builder.hpp"
#include "runtime/program/write/step_states.hpp"
#include "runtime/program/write/update_flow.hpp"
#include "runtime/program/write/use_order.hpp"

namespace sluice {
namespace {

// All ranks receive each rank's scalars and sums of squares.
ExchangeList norm_exchange(const StepShape& shape) {
  if (shape.world() == 1) return {};
  const auto groups = std::max(shape.most_groups, static_cast<int>(shape.groups.size()));
  const std::int64_t values = kNormScalars + groups * (shape.stage == 0 ? shape.dp : 1);
  return {{.kind = ExchangeKind::kAllGather,
           .ranks = ExchangeRanks::kWorld,
           .bytes = (shape.world() - 1) * values * 8}};
}

class StepWriter {
 public:
  StepWriter(const StepShape& shape, StepForm form)
      : shape_(shape),
        form_(form),
        training_(form.kind == StepKind::kTrain),
        order_(order_uses(shape, training_)),
        updates_(builder_, shape, training_),
        params_(builder_, shape, order_.uses, updates_),
        grads_(builder_, shape),
        device_updates_(builder_, shape, grads_),
        inputs_(builder_, shape, order_.uses, training_),
        pipe_(builder_, shape, order_, training_),
        flights_(builder_, shape, pipe_) {}

  Program write() {
    params_.gather_residents();
    if (order_.slots.empty()) {
      for (std::size_t i = 0; i < order_.uses.size(); ++i) write_use(i);
    }
    for (std::size_t k = 0; k < order_.slots.size(); ++k) {
      pipe_.begin_slot(k);
      for (std::size_t i = order_.slots[k].begin; i < order_.slots[k].end; ++i) write_use(i);
    }
    if (training_) {
      write_update();
    } else {
      write_end();
    }
    // An additional program of the rank adds no persistent state.
    if (training_ || shape_.frozen) {
      Program& program = builder_.program();
      program.states = step_states(shape_, program.chunks, adds_on_host(program));
    }
    while (training_ && !has_backward(shape_, builder_.program().first_backward)) {
      ++builder_.program().first_backward;
    }
    builder_.program().whole_groups = owns_whole_groups(shape_);
    builder_.program().in_place = reduces_in_place(shape_);
    builder_.program().decodes = form_.kind == StepKind::kDecode;
    assign_arena(builder_.program());
    std::int64_t& arena = builder_.program().arena_bytes;
    if (training_) arena = std::max(arena, shape_.other_arena_bytes);
    builder_.program().ops.shrink_to_fit();
    return std::move(builder_.program());
  }

 private:
  void write_use(std::size_t i);
  void write_forward(const Use& use, Op op);
  void write_loss_head(const Use& use, Op op);
  void open_caches(Op& op);
  void write_logits(const Use& use, Op op);
  void write_backward(const Use& use, Op op);
  void write_weights(const Use& use, Op op);
  void load_batch(int micro_batch);
  void commit();
  void write_update();
  void write_end();

  const StepShape& shape_;
  const StepForm form_;
  const bool training_;
  const UseOrder order_;
  ProgramBuilder builder_;
  UpdateFlow updates_;
  ParamWindow params_;
  GradFlow grads_;
  DeviceUpdates device_updates_;
  InputFlow inputs_;
  PipeFlow pipe_;
  StepFlights flights_;
  std::vector<BufferId> caches_;  // of units, in the decode program
  OpId committed_ = -1;
};

void StepWriter::load_batch(int micro_batch) {
  BufferId& batch = flights_[micro_batch].batch;
  batch = builder_.buffer(Tag::kBatch, shape_.batch_bytes);
  Op load{.kind = OpKind::kLoadBatch, .micro_batch = micro_batch, .live = {batch}};
  if (form_.kind == StepKind::kDecode) open_caches(load);
  builder_.emit(std::move(load));
}

void StepWriter::write_use(std::size_t i) {
  const Use& use = order_.uses[i];
  const bool takes_tokens = use.kind == OpKind::kForward && !has_input(shape_, use.unit);
  const bool takes_targets = use.kind == OpKind::kLossHead && !shape_.begins_model();
  if (takes_tokens || (takes_targets && form_.kind != StepKind::kDecode))
    load_batch(use.micro_batch);
  Op op{.kind = use.kind, .unit = use.unit, .micro_batch = use.micro_batch};
  if (form_.kind == StepKind::kDecode && i == 0 && !takes_tokens) open_caches(op);
  params_.enter(i, op);
  inputs_.enter(i, op);
  pipe_.enter(op);
  if (use.kind == OpKind::kForward) {
    write_forward(use, std::move(op));
  } else if (form_.kind == StepKind::kDecode) {
    write_logits(use, std::move(op));
  } else if (use.kind == OpKind::kLossHead) {
    write_loss_head(use, std::move(op));
  } else {
    const int done = order_.last_backwards - static_cast<int>(order_.uses.size() - i);
    if (done >= 0) {
      const std::vector<GradFlow::Summed> summed = grads_.take_summed();
      updates_.speculate(summed, done, order_.last_backwards);
      updates_.sum_squares(summed);
      updates_.read_ahead(done, order_.last_backwards);
      device_updates_.follow(summed);
    }
    if (use.kind == OpKind::kBackward) {
      write_backward(use, std::move(op));
    } else {
      write_weights(use, std::move(op));
    }
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
  const UnitShape& unit = nth(shape_.units, use.unit);
  const FlightBuffers& now = flights_[use.micro_batch];
  op.flops = unit.forward_flops;
  op.workspace_bytes = unit.memory.forward_only_peak;
  op.dead_after = caches_;
  op.dead_after.push_back(flights_.take_input(op));
  if (now.batch >= 0) op.dead_after.push_back(now.batch);
  builder_.emit(std::move(op));
}

void StepWriter::write_forward(const Use& use, Op op) {
  const UnitShape& unit = nth(shape_.units, use.unit);
  const UnitMemory& memory = unit.memory;
  FlightBuffers& now = flights_[use.micro_batch];
  const auto u = static_cast<std::size_t>(use.unit);
  const bool remembers = training_ && has_backward(shape_, use.unit);
  const bool keep = remembers && !shape_.recompute;
  const bool sends = ends_chunk(shape_, use.unit);
  op.save = keep;
  op.flops = unit.forward_flops;
  op.exchanges = builder_.exchanges(unit.exchanges.forward);
  const BufferId output = builder_.buffer({.tag = Tag::kActivations,
                                           .bytes = memory.output,
                                           .small = small_bytes(shape_, memory.output),
                                           .unit = sends ? -1 : use.unit + 1,
                                           .micro_batch = use.micro_batch});
  op.live.push_back(output);
  std::int64_t made = memory.output;
  if (keep && memory.kept > 0) {
    now.kept[u] = builder_.buffer(
        {.tag = Tag::kActivations, .bytes = memory.kept, .small = memory.kept_small});
    op.live.push_back(now.kept[u]);
    made += memory.kept;
  }
  op.workspace_bytes =
      std::max<std::int64_t>(0, (keep ? memory.forward_peak : memory.forward_only_peak) - made);
  const BufferId input = has_input(shape_, use.unit) ? flights_.take_input(op) : -1;
  if (!remembers) {
    if (input >= 0) op.dead_after.push_back(input);
    if (input < 0 && !shape_.ends_model()) op.dead_after.push_back(now.batch);
  }
  if (!sends) now.activation[u + 1] = output;
  builder_.emit(std::move(op));
  if (sends) pipe_.send_activation(use.unit, use.micro_batch, output);
  if (input >= 0) inputs_.forward_done(use, input, now.kept[u]);
}

void StepWriter::write_loss_head(const Use& use, Op op) {
  const UnitShape& unit = nth(shape_.units, use.unit);
  const UnitMemory& memory = unit.memory;
  FlightBuffers& now = flights_[use.micro_batch];
  op.save = training_;
  op.flops = unit.forward_flops * (training_ ? 2 : 1);
  if (training_) op.flops += unit.weight_flops;
  ExchangeList exchanges = unit.exchanges.forward;
  if (training_) {
    for (const Exchange& e : unit.exchanges.backward) append(exchanges, e);
  }
  op.exchanges = builder_.exchanges(std::move(exchanges));
  if (training_) grads_.open(op);
  const BufferId scratch =
      builder_.buffer(Tag::kLossHead, memory.scratch, form_.scratch == HeadScratch::kSlot);
  op.live.push_back(scratch);
  op.dead_after = {scratch, flights_.take_input(op)};
  BufferId gradient = -1;
  if (training_) {
    gradient = flights_.make_input_gradient(op);
    op.workspace_bytes = std::max<std::int64_t>(0, memory.backward_peak - memory.input_gradient);
  } else {
    op.workspace_bytes = memory.forward_only_peak;
  }
  const bool embeds_again = training_ && shape_.begins_model() && has_backward(shape_, 0);
  if (!embeds_again) op.dead_after.push_back(now.batch);
  const OpId id = builder_.emit(std::move(op));
  if (!training_) return;
  flights_.pass_on(use, gradient);
  commit();
  grads_.close(id, use.flushes);
}

// Emits the commit once, after the loss head or the first backward. That operation needs the last
// group's update, and the last chunks are written to the disk while it runs.
void StepWriter::commit() {
  if (committed_ >= 0) return;
  committed_ = updates_.commit();
  if (updates_.overwrites_early()) grads_.hold_reductions(committed_);
}

void StepWriter::write_backward(const Use& use, Op op) {
  const UnitShape& unit = nth(shape_.units, use.unit);
  updates_.meet();
  const UnitMemory& memory = unit.memory;
  FlightBuffers& now = flights_[use.micro_batch];
  const auto u = static_cast<std::size_t>(use.unit);
  op.recompute = shape_.recompute;
  op.split = use.split;
  op.flops = unit.forward_flops * (shape_.recompute ? 2 : 1) + unit.recomputed_flops +
             (use.split ? 0 : unit.weight_flops);
  const UnitExchanges& exchanges = unit.exchanges;
  op.exchanges = builder_.exchanges(shape_.recompute ? exchanges.again : exchanges.backward);
  if (!use.split) grads_.open(op);
  op.dead_after.push_back(now.gradient[u] >= 0 ? now.gradient[u] : pipe_.take_gradient(op));
  const BufferId fetched = inputs_.fetched(use);  // input and kept activations
  if (now.kept[u] >= 0 && fetched < 0) op.dead_after.push_back(now.kept[u]);
  now.kept[u] = -1;
  now.gradient[u] = -1;
  BufferId gradient = -1;
  std::int64_t made = 0;
  if (has_input(shape_, use.unit)) {
    op.dead_after.push_back(fetched >= 0 ? fetched : now.activation[u]);
    gradient = flights_.make_input_gradient(op);
    made = memory.input_gradient;
  } else {
    op.dead_after.push_back(now.batch);
  }
  const std::int64_t peak = shape_.recompute ? memory.recompute_peak : memory.backward_peak;
  op.workspace_bytes = std::max<std::int64_t>(0, peak - made);
  if (use.split) {
    now.deferred[u] = builder_.buffer(Tag::kActivations, memory.deferred);
    op.live.push_back(now.deferred[u]);
    // Below 0 if the deferred buffer reuses kept activations, which must not count twice.
    op.workspace_bytes = peak - made - memory.deferred;
  }
  const OpId id = builder_.emit(std::move(op));
  if (gradient >= 0) flights_.pass_on(use, gradient);
  commit();  // for a pipeline stage without a loss head
  if (!use.split) grads_.close(id, use.flushes);
}

void StepWriter::write_weights(const Use& use, Op op) {
  const UnitShape& unit = nth(shape_.units, use.unit);
  BufferId& deferred = nth(flights_[use.micro_batch].deferred, use.unit);
  op.flops = unit.weight_flops;
  op.workspace_bytes = unit.memory.weights_peak;
  grads_.open(op);
  op.dead_after.push_back(std::exchange(deferred, -1));
  const OpId id = builder_.emit(std::move(op));
  grads_.close(id, use.flushes);
}

// Writes the norm and the updates on the device. Off-device updates are deferred.
void StepWriter::write_update() {
  Op norm{.kind = OpKind::kNormAndScale};
  // A stage may have no backward after its last forward or loss head.
  if (order_.last_backwards == 0) updates_.read_ahead(0, 1);
  updates_.end_speculation();
  if (committed_ >= 0) norm.waits.push_back(committed_);
  const std::vector<GradFlow::Summed> summed = grads_.take_summed();
  updates_.sum_squares(summed);
  device_updates_.follow(summed);
  device_updates_.follow({});
  grads_.finish(norm);
  pipe_.finish(norm);
  updates_.finish(norm, grads_);
  norm.exchanges = builder_.exchanges(norm_exchange(shape_));
  device_updates_.finish(builder_.emit(std::move(norm)));
}

// Without training, a stage's sent buffers and caches live to the end of the program.
void StepWriter::write_end() {
  Op end{.kind = OpKind::kRelease};
  pipe_.finish(end);
  if (!shape_.ends_model()) end.dead_after = caches_;  // else the logits operation frees them
  if (!end.waits.empty()) builder_.emit(std::move(end));
}

}  // namespace

Program write_step(const StepShape& shape, StepForm form) {
  return StepWriter(shape, form).write();
}

}  // namespace sluice
