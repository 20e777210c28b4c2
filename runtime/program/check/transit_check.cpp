#include "runtime/program/check/transit_check.hpp"

#include "base/index.hpp"

namespace sluice {

TransitCheck::TransitCheck(const Program& program, FirstFault& fault, Touches& touches,
                           ChunkCheck& chunks)
    : program_(program), fault_(fault), touches_(touches), chunks_(chunks) {
  int loads = 0;
  bool headed = false;
  bool staged = false;
  for (const Op& op : program.ops) {
    headed = headed || op.kind == OpKind::kLossHead;
    staged = staged || op.lane == Lane::kPipe;
    loads += op.kind == OpKind::kLoadBatch && !headed ? 1 : 0;
    fed_ = fed_ || (op.kind == OpKind::kReceiveActivation && op.unit == 0);
    if (op.kind == OpKind::kGather) gathered_.insert(op.group);
    if (op.kind == OpKind::kFetchShard) fetched_.insert(op.group);
    if (op.kind == OpKind::kReadShard) on_disk_.insert(op.group);
  }
  // The second batch is loaded before the first one's loss.
  many_inputs_ = staged || loads > 1;
}

void TransitCheck::enter(const Op& op) {
  const bool computes = op.lane == Lane::kCompute && op.kind != OpKind::kGather;
  if (computes) {
    compute(op);
  } else if (op.lane == Lane::kPipe) {
    cross(op);
  } else if (op.bucket >= 0) {
    move_bucket(op);
  } else if (op.unit >= 0) {
    move_input(op);
  } else {
    move_shard(op);
  }
}

void TransitCheck::forget(BufferId b) {
  touches_.forget(b);
  std::erase_if(inputs_, [b](const auto& input) { return input.second == b; });
}

// Records that a unit's input is on the device again.
void TransitCheck::bring_input(const Op& op) {
  inputs_[{op.unit, op.micro_batch}] = op.device_slot;
  touches_.fill(op.device_slot, {What::kInput, op.unit, op.micro_batch});
}

void TransitCheck::compute(const Op& op) {
  for (const BufferId b : op.live) make(op, b);
  const auto gradient = received_.find({op.unit, op.micro_batch});
  if (op.kind == OpKind::kBackward && gradient != received_.end()) {
    touches_.take(gradient->second, {What::kGradient, op.unit, op.micro_batch});
  }
  // kBackwardWeights has its input in the deferred buffer.
  if ((op.unit > 0 || (op.unit == 0 && fed_)) && op.kind != OpKind::kBackwardWeights) {
    const auto input = inputs_.find({op.unit, op.micro_batch});
    if (input == inputs_.end()) return fault_.fail("has no input");
    touches_.take(input->second, {What::kInput, op.unit, op.micro_batch});
  }
  for (const int g : op.reads) {
    if (gathered_.count(g) == 0) chunks_.read_params(g, Tier::kDevice);
  }
}

void TransitCheck::make(const Op& op, BufferId b) {
  const Buffer& buffer = nth(program_.buffers, b);
  const bool sent = buffer.unit < 0 && buffer.micro_batch >= 0;
  if (sent && buffer.tag == Tag::kActivations) {
    touches_.fill(b, {What::kOutput, op.unit, op.micro_batch});
  }
  if (sent && buffer.tag == Tag::kActivationGradients) {
    touches_.fill(b, {What::kGradient, op.unit, op.micro_batch});
  }
  if (buffer.tier != Tier::kDevice || buffer.tag != Tag::kActivations || buffer.unit < 0) return;
  touches_.fill(b, {What::kInput, buffer.unit, buffer.micro_batch});
  inputs_[{buffer.unit, buffer.micro_batch}] = b;
}

void TransitCheck::cross(const Op& op) {
  switch (op.kind) {
    case OpKind::kReceiveActivation:
      return bring_input(op);
    case OpKind::kReceiveGradient:
      received_[{op.unit, op.micro_batch}] = op.device_slot;
      return touches_.fill(op.device_slot, {What::kGradient, op.unit, op.micro_batch});
    case OpKind::kSendActivation:
      return touches_.take(op.device_slot, {What::kOutput, op.unit, op.micro_batch});
    default:
      return touches_.take(op.device_slot, {What::kGradient, op.unit, op.micro_batch});
  }
}

void TransitCheck::move_bucket(const Op& op) {
  const Content bucket{What::kBucket, op.bucket, 0};
  switch (op.kind) {
    case OpKind::kReduceGrads:
      if (op.device_slot >= 0) return touches_.fill(op.device_slot, bucket);
      return write_bucket(op.bucket);
    case OpKind::kReadBucket:
      touches_.touch_bucket(op.bucket, false);
      return touches_.fill(op.host_slot, bucket);
    case OpKind::kStoreGrads:
      touches_.take(op.device_slot, bucket);
      if (op.host_slot < 0) return write_bucket(op.bucket);
      if (op.accumulate) touches_.take(op.host_slot, bucket);
      return touches_.fill(op.host_slot, bucket);
    case OpKind::kWriteBucket:
      touches_.take(op.host_slot, bucket);
      return write_bucket(op.bucket);
    default:
      return write_bucket(op.bucket);
  }
}

void TransitCheck::write_bucket(int bucket) {
  touches_.touch_bucket(bucket, true);
  for (const BucketPiece& piece : nth(program_.buckets, bucket)) {
    chunks_.change_grads(piece.group);
  }
}

void TransitCheck::move_input(const Op& op) {
  const Content input{What::kInput, op.unit, op.micro_batch};
  const Place extent{Space::kInput, op.unit, many_inputs_ ? op.micro_batch : 0};
  switch (op.kind) {
    case OpKind::kSaveInput:
      touches_.take(op.device_slot, input);
      return touches_.fill(op.host_slot, input);
    case OpKind::kWriteInput:
      touches_.take(op.host_slot, input);
      touches_.touch(extent, true);
      extents_[extent] = input;
      return;
    case OpKind::kReadInput: {
      touches_.touch(extent, false);
      const auto there = extents_.find(extent);
      if (there == extents_.end() || there->second != input) fault_.fail("reads another input");
      return touches_.fill(op.host_slot, input);
    }
    default:
      touches_.take(op.host_slot, input);
      return bring_input(op);
  }
}

void TransitCheck::move_shard(const Op& op) {
  const Content shard{What::kShard, op.group, 0};
  if (op.kind == OpKind::kReadShard) {
    chunks_.read_params(op.group, Tier::kNvme);
    return touches_.fill(op.host_slot, shard);
  }
  if (op.kind == OpKind::kFetchShard) {
    if (on_disk_.count(op.group) > 0) {
      touches_.take(op.host_slot, shard);
    } else {
      chunks_.read_params(op.group, Tier::kHost);
    }
    return touches_.fill(op.device_slot, shard);
  }
  if (fetched_.count(op.group) > 0) {
    touches_.take(op.device_slot, shard);
  } else {
    chunks_.read_params(op.group, Tier::kDevice);
  }
  if (op.device_slot >= 0) touches_.touch({Space::kSlot, op.device_slot, 0}, true);
}

}  // namespace sluice
