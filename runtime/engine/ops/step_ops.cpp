#include "runtime/engine/ops/step_ops.hpp"

#include <utility>

#include "runtime/engine/ops/op_clock.hpp"
#include "runtime/engine/ops/program_memory.hpp"
#include "runtime/engine/ops/run_image.hpp"
#include "runtime/engine/ops/step_run.hpp"
#include "runtime/engine/tiers/tier_store.hpp"

namespace sluice {

StepOps::StepOps(const StepParts& parts, RowSource train, RowSource valid)
    : memory_(parts.memory),
      run_(parts.run),
      flights_(parts.flights),
      image_(parts.image),
      copies_(parts.copies),
      tiers_(parts.tiers),
      clock_(parts.clock),
      batch_({parts.setup, parts.run, parts.flights, parts.graphs != nullptr}, std::move(train),
             std::move(valid)),
      scalars_(parts, batch_),
      compute_(parts, batch_, scalars_.on_device()),
      parameters_(parts),
      graphs_(parts.run, parts.graphs, [this] { return batch_.outgrows_graphs(); }),
      gradients_(parts, graphs_),
      norm_(parts),
      update_(parts),
      inputs_(parts),
      pipe_(parts, graphs_) {}

void StepOps::begin_program() {
  flights_.begin_program();
  scalars_.begin_program();
  compute_.begin_program();
  parameters_.begin_program();
  gradients_.begin_program();
  inputs_.begin_program();
  pipe_.begin_program();
  norm_.begin_program();
  graphs_.begin_program();
  if (clock_ != nullptr) clock_->begin_program(*run_.program, run_.mode == RunMode::kTrain);
}

void StepOps::waits(const Op& op) {
  if (clock_ != nullptr) clock_->waits(op);
}

// Where the GPU has decided, the host waits here for the first time in the step.
void StepOps::end_program() {
  if (norm_.finish() && clock_ != nullptr) clock_->read();
}

void StepOps::enter(const Op& op) {
  unbind(op.dead_before);
  bind(op.live);
  switch (op.kind) {
    case OpKind::kGather:
      parameters_.enter_gather(op);
      break;
    case OpKind::kReduceGrads:
      gradients_.enter_reduce(op);
      break;
    case OpKind::kSaveInput:
    case OpKind::kFetchInput:
      inputs_.enter_move(op);
      break;
    default:
      break;
  }
}

void StepOps::bind(const std::vector<BufferId>& buffers) {
  for (const BufferId id : buffers) {
    const Buffer& buffer = run_.buffer(id);
    inputs_.bind(id);
    if (buffer.tag == Tag::kLossHead && !buffer.in_arena) compute_.bind(buffer, {});
    if (buffer.tag == Tag::kGradients) gradients_.bind(id);
    if (!buffer.in_arena || buffer.tier != Tier::kDevice) continue;
    if (buffer.tag == Tag::kGatheredParameters) parameters_.bind(buffer);
    if (buffer.tag == Tag::kGradientBuckets) gradients_.bind(id);
    if (buffer.tag == Tag::kLossHead || buffer.tag == Tag::kKvCache) {
      compute_.bind(buffer, memory_.bytes_of(buffer));
    }
  }
}

void StepOps::unbind(const std::vector<BufferId>& buffers) {
  for (const BufferId id : buffers) {
    const Buffer& buffer = run_.buffer(id);
    if (buffer.tier != Tier::kDevice) continue;
    pipe_.unbind(id);
    inputs_.unbind(id);
    if (buffer.tag == Tag::kGradients) gradients_.unbind(id);
    if (!buffer.in_arena) continue;
    if (buffer.tag == Tag::kGatheredParameters) parameters_.unbind(buffer);
    if (buffer.tag == Tag::kGradientBuckets) gradients_.unbind(id);
  }
}

// A unit's events may become nodes of a graph; the launch of a graph has none of its own.
Ticket StepOps::run(const Op& op) {
  if (!may_be_recorded(op)) return timed(clock_, op, [&] { return run_other(op); });
  scalars_.write();
  graphs_.run(op, [&] {
    timed(clock_, op, [&] {
      run_recorded(op);
      return Ticket();
    });
  });
  return {};
}

void StepOps::run_recorded(const Op& op) {
  switch (op.kind) {
    case OpKind::kRelease:  // the slot dies with the operation
      return;
    case OpKind::kGather:
      return parameters_.round(op);
    case OpKind::kForward:
      return compute_.forward(op);
    case OpKind::kLossHead:
      return compute_.loss_head(op);
    case OpKind::kBackward:
      return compute_.backward(op);
    case OpKind::kRoundGrads:
      return gradients_.round(op);
    default:
      return compute_.backward_weights(op);
  }
}

Ticket StepOps::run_other(const Op& op) {
  switch (op.kind) {
    case OpKind::kLoadBatch:
      batch_.load(op);
      return {};
    case OpKind::kAddGrads:
      gradients_.add_streams(op);
      return {};
    case OpKind::kSaveInput:
    case OpKind::kFetchInput:
      inputs_.move(op);
      return {};
    case OpKind::kCommit:
      return commit();
    case OpKind::kUpdate:
      if (op.chunk >= 0) return run_between_tiers(op);
      update_.update(
          op, op.in_backward ? norm_.decide_group(op.group, compute_.losses()) : norm_.decision());
      return {};
    default:
      return communicate(op);
  }
}

Ticket StepOps::communicate(const Op& op) {
  switch (op.kind) {
    case OpKind::kGather:
      return parameters_.gather(op);
    case OpKind::kReduceGrads:
      return gradients_.reduce(op);
    case OpKind::kGatherGrads:
      return gradients_.gather(op);
    case OpKind::kAddReplicas:
      gradients_.add_replicas(op);
      return {};
    case OpKind::kMeet:
      norm_.meet();
      return {};
    case OpKind::kNormAndScale:
      gradients_.settle_replicas();
      if (!norm_.reads_losses()) compute_.add_losses();
      norm_.norm_and_scale(compute_.losses());
      if (clock_ != nullptr && norm_.decision() == nullptr) clock_->read();
      return {};
    case OpKind::kReceiveActivation:
    case OpKind::kReceiveGradient:
      return pipe_.receive(op);
    case OpKind::kSendActivation:
    case OpKind::kSendGradient:
      return pipe_.send(op);
    default:
      return run_between_tiers(op);
  }
}

Ticket StepOps::run_between_tiers(const Op& op) {
  return tiers_->run(*run_.program, op, copies_->address(memory_.arena.data_ptr()));
}

// The program begins with the updates of the step before. A step that is only looked at applies no
// update, so it has nothing to commit.
Ticket StepOps::commit() {
  if (run_.mode != RunMode::kTrain) return {};
  return image_.commit(run_.input.step - 1);
}

}  // namespace sluice
