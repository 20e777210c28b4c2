#include "runtime/program/check/unit_check.hpp"

namespace sluice {

UnitCheck::UnitCheck(const Program& program, FirstFault& fault)
    : fault_(fault), decodes_(program.decodes), first_backward_(program.first_backward) {
  for (const Op& op : program.ops) {
    trains_ = trains_ || op.kind == OpKind::kBackward || (op.kind == OpKind::kLossHead && op.save);
    if (op.unit >= 0) units_.insert(op.unit);
    if (op.kind == OpKind::kReceiveActivation) fed_.insert(op.unit);
    if (op.kind == OpKind::kReceiveGradient) paid_.insert(op.unit);
    if (op.kind == OpKind::kSendActivation) feeds_.insert(op.unit);
    if (op.kind == OpKind::kSendGradient) pays_.insert(op.unit);
  }
}

void UnitCheck::enter(const Op& op) {
  if (op.lane == Lane::kCompute) compute(op);
  if (op.lane == Lane::kPipe) cross(op);
}

void UnitCheck::at_end() {
  if (!forwards_.empty()) fault_.fail_whole("a forward has no backward");
  if (!halves_.empty()) fault_.fail_whole("a split backward is never ended");
  if (!to_send_.empty()) fault_.fail_whole("a tensor for another stage is not sent");
}

// Micro-batches must run in order.
void UnitCheck::run_once(const Op& op) {
  if (!ran_.insert({op.kind, op.unit, op.micro_batch}).second) fault_.fail("runs a second time");
  if (op.micro_batch > 0 && !ran(op.kind, op.unit, op.micro_batch - 1)) {
    fault_.fail("runs a micro-batch out of turn");
  }
}

// Checks only the order of messages. transit_check checks that a received message has arrived
// before its use.
void UnitCheck::cross(const Op& op) {
  run_once(op);
  if (is_send(op.kind) && to_send_.erase({op.kind, op.unit, op.micro_batch}) == 0) {
    fault_.fail("sends a message that no operation produced");
  }
}

void UnitCheck::compute(const Op& op) {
  if (op.kind == OpKind::kLoadBatch) loaded_.insert(op.micro_batch);
  if (op.unit < 0) return;
  run_once(op);
  if (op.kind == OpKind::kBackwardWeights) {
    if (halves_.erase({op.unit, op.micro_batch}) == 0) {
      fault_.fail("is a BackwardWeights without its split Backward");
    }
    return;
  }
  const bool back = op.kind == OpKind::kBackward;
  if ((back || (op.kind == OpKind::kLossHead && trains_)) && pays_.count(op.unit) > 0) {
    to_send_.insert({OpKind::kSendGradient, op.unit, op.micro_batch});
  }
  return back ? go_back(op) : go_forward(op);
}

// A forward must come after the unit that makes its input.
void UnitCheck::go_forward(const Op& op) {
  const int u = op.unit;
  const bool first = fed_.count(u) == 0 && units_.count(u - 1) == 0;
  if ((first || op.kind == OpKind::kLossHead) && !decodes_ && loaded_.count(op.micro_batch) == 0) {
    fault_.fail("comes before its batch");
  }
  if (fed_.count(u) > 0 ? !ran(OpKind::kReceiveActivation, u, op.micro_batch)
                        : !first && !ran(OpKind::kForward, u - 1, op.micro_batch)) {
    fault_.fail("has no input");
  }
  if (op.kind != OpKind::kForward) return;
  if (feeds_.count(u) > 0) to_send_.insert({OpKind::kSendActivation, u, op.micro_batch});
  if (trains_ && u >= first_backward_) forwards_.insert({u, op.micro_batch});
}

void UnitCheck::go_back(const Op& op) {
  if (forwards_.erase({op.unit, op.micro_batch}) == 0) fault_.fail("has no forward");
  const bool from_stage = paid_.count(op.unit) > 0;
  if (from_stage ? !ran(OpKind::kReceiveGradient, op.unit, op.micro_batch)
                 : !ran(OpKind::kBackward, op.unit + 1, op.micro_batch) &&
                       !ran(OpKind::kLossHead, op.unit + 1, op.micro_batch)) {
    fault_.fail("has no gradient to start from");
  }
  if (op.split) halves_.insert({op.unit, op.micro_batch});
}

}  // namespace sluice
