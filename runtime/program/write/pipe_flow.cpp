#include "runtime/program/write/pipe_flow.hpp"

#include "base/error.hpp"

namespace sluice {

PipeFlow::PipeFlow(ProgramBuilder& builder, const StepShape& shape, const UseOrder& order,
                   bool training)
    : builder_(builder), shape_(shape), order_(order) {
  if (training && is_pipelined(shape)) {
    after_sends_ = slots_after_sends(pipeline_run(shape), shape.pipeline.stage);
  }
}

void PipeFlow::begin_slot(std::size_t k) {
  slot_ = k;
  if (k == 0) post(0);
  if (k + 1 < order_.slots.size()) post(k + 1);
}

void PipeFlow::post(std::size_t k) {
  const Slot& slot = order_.slots[k].slot;
  const PipelineShape& pipeline = shape_.pipeline;
  const SlotPeer peer =
      peer_of(slot, pipeline.stage, pipeline.stages, pipeline.virtual_stages(), false);
  if (peer.stage < 0) return;
  const bool forward = slot.kind == SlotKind::kForward;
  Op op{.kind = forward ? OpKind::kReceiveActivation : OpKind::kReceiveGradient,
        .lane = Lane::kPipe};
  op.unit = forward ? chunk_begin(shape_, slot.chunk) : chunk_end(shape_, slot.chunk) - 1;
  op.micro_batch = slot.micro_batch;
  op.device_slot = builder_.buffer({.tag = forward ? Tag::kActivations : Tag::kActivationGradients,
                                    .bytes = pipeline.boundary_bytes,
                                    .small = small_bytes(shape_, pipeline.boundary_bytes),
                                    .unit = forward ? op.unit : -1,
                                    .micro_batch = op.micro_batch});
  op.live = {op.device_slot};
  const Key key{op.kind, op.unit, op.micro_batch};
  const BufferId buffer = op.device_slot;
  arrivals_[key] = {builder_.emit(std::move(op)), buffer};
}

void PipeFlow::enter(Op& op) {
  std::erase_if(sent_, [&](const Sent& sent) {
    if (sent.until > slot_) return false;
    op.waits.push_back(sent.op);
    op.dead_before.push_back(sent.buffer);
    return true;
  });
}

BufferId PipeFlow::take(OpKind kind, Op& op) {
  const auto arrival = arrivals_.find({kind, op.unit, op.micro_batch});
  check(arrival != arrivals_.end(), "what a slot needs was posted");
  op.waits.push_back(arrival->second.op);
  return arrival->second.buffer;
}

BufferId PipeFlow::take_activation(Op& op) { return take(OpKind::kReceiveActivation, op); }
BufferId PipeFlow::take_gradient(Op& op) { return take(OpKind::kReceiveGradient, op); }

void PipeFlow::send(OpKind kind, int unit, int micro_batch, BufferId buffer) {
  Op op{.kind = kind, .lane = Lane::kPipe, .unit = unit, .micro_batch = micro_batch};
  op.device_slot = buffer;
  op.wire_bytes = shape_.pipeline.message_bytes;
  const OpId id = builder_.emit(std::move(op));
  const std::size_t until =
      after_sends_.empty() ? order_.slots.size() : static_cast<std::size_t>(after_sends_[slot_]);
  sent_.push_back({id, buffer, until});
}

void PipeFlow::send_activation(int unit, int micro_batch, BufferId output) {
  send(OpKind::kSendActivation, unit, micro_batch, output);
}
void PipeFlow::send_gradient(int unit, int micro_batch, BufferId gradient) {
  send(OpKind::kSendGradient, unit, micro_batch, gradient);
}

void PipeFlow::finish(Op& op) {
  slot_ = order_.slots.size();
  enter(op);
}

}  // namespace sluice
