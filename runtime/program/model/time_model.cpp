#include "runtime/program/model/time_model.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace sluice {
namespace {

double over(double amount, double rate) { return rate > 0 ? amount / rate : 0; }
double or_else(double rate, double other) { return rate > 0 ? rate : other; }

// Seconds of single operations.
class Pricing {
 public:
  Pricing(const Program& program, const StepShape& shape, const Rates& rates)
      : program_(program), shape_(shape), rates_(rates) {}

  double seconds(const Op& op) const {
    switch (op.lane) {
      case Lane::kCompute:
        return compute(op) * rates_.compute_factor;
      case Lane::kComm:
        return comm(op);
      case Lane::kPipe:
        return rates_.comm_latency_s +
               over(bytes_of({op.device_slot}), or_else(rates_.pipe_bps, rates_.comm_bps));
      case Lane::kHost:
        return host(op);
      case Lane::kToHost:
        return over(static_cast<double>(op.moved_bytes), rates_.d2h_bps);
      case Lane::kToDevice:
        return over(static_cast<double>(op.moved_bytes), rates_.h2d_bps);
      case Lane::kDisk:
        return over(static_cast<double>(op.moved_bytes),
                    writes_disk(op.kind) ? rates_.disk_write_bps : rates_.disk_read_bps);
    }
    return 0;
  }

 private:
  double latency() const {
    return shape_.dp > 1 ? rates_.comm_latency_s * std::log2(shape_.dp) : 0;
  }
  double bytes_of(const std::vector<BufferId>& buffers) const {
    double bytes = 0;
    for (const BufferId id : buffers) {
      const Buffer& buffer = program_.buffers[static_cast<std::size_t>(id)];
      const bool made = buffer.tag == Tag::kActivations || buffer.tag == Tag::kActivationGradients;
      if (made && buffer.tier == Tier::kDevice) bytes += static_cast<double>(buffer.bytes);
    }
    return bytes;
  }
  // Sums gradients of `elems` elements: read from `from` arrays, written to one.
  double adding(double elems, int from, Tier tier) const {
    return over(4 * elems * (from + 1),
                tier == Tier::kDevice ? rates_.device_memory_bps : rates_.host_memory_bps);
  }

  double measured(const Op& op, const UnitSeconds& unit) const {
    if (op.kind == OpKind::kForward) return unit.forward;
    if (op.kind == OpKind::kLossHead) return op.save ? unit.backward : unit.forward;
    // Of a backward in two, products by the input and by the weights are as many.
    const bool half = op.split || op.kind == OpKind::kBackwardWeights;
    return unit.backward * (half ? 0.5 : 1) + (op.recompute ? unit.forward : 0);
  }
  // Gradients that a unit without products, an embedding, begins: filled with zeroes.
  double opened_bytes(const Op& op) const {
    double elems = 0;
    for (const int g : op.opens) {
      elems += static_cast<double>(shape_.groups[static_cast<std::size_t>(g)].elems);
    }
    return op.flops > 0 ? 0 : 4 * elems;
  }

  // What the unit makes is written once and read once; backward also reads what was kept.
  double unit(const Op& op) const {
    if (!rates_.units.empty()) {
      const UnitSeconds& known = rates_.units[static_cast<std::size_t>(op.unit)];
      if (known.known) return measured(op, known) + tensor(op);
    }
    double bytes =
        opened_bytes(op) + 2 * (bytes_of(op.live) + static_cast<double>(op.workspace_bytes));
    if (op.kind == OpKind::kBackward || op.kind == OpKind::kBackwardWeights) {
      bytes += bytes_of(op.dead_after);
    }
    return over(op.flops, rates_.flops) + over(bytes, rates_.device_memory_bps) + tensor(op);
  }
  // Between tensor-parallel ranks, none of it hidden.
  double tensor(const Op& op) const {
    if (op.tensor_bytes == 0) return 0;
    return rates_.comm_latency_s * std::log2(std::max(2, shape_.tensor)) +
           over(static_cast<double>(op.tensor_bytes), or_else(rates_.tensor_bps, rates_.comm_bps));
  }
  double compute(const Op& op) const {
    switch (op.kind) {
      case OpKind::kForward:
      case OpKind::kLossHead:
      case OpKind::kBackward:
      case OpKind::kBackwardWeights:
        return unit(op);
      case OpKind::kUpdate:
        return over(adamw_updates(shape_, static_cast<double>(device_elems(shape_, op.group))),
                    rates_.device_adam);
      case OpKind::kAddGrads: {
        const auto elems =
            static_cast<double>(shape_.groups[static_cast<std::size_t>(op.group)].shard_elems);
        const int streams = gradient_streams(shape_, op.group);
        return (streams - 1) * adding(elems, 2, shape_.placement.gradients);
      }
      case OpKind::kAddReplicas:
        return replicas(op);
      case OpKind::kNormAndScale:
        return norm();
      default:
        return 0;
    }
  }
  double replicas(const Op& op) const {
    const auto elems = static_cast<double>(owned_elems(shape_, op.group));
    return rates_.comm_latency_s +
           over(static_cast<double>(op.wire_bytes), or_else(rates_.tensor_bps, rates_.comm_bps)) +
           adding(elems, 2, shape_.placement.gradients);
  }
  double norm() const {
    if (shape_.placement.gradients == Tier::kNvme) return latency();
    double elems = 0;
    for (int g = 0; g < static_cast<int>(shape_.groups.size()); ++g) {
      elems += static_cast<double>(owned_elems(shape_, g));
    }
    return latency() + adding(elems, 0, shape_.placement.gradients);
  }
  // One rank alone copies or adds what more of them would send.
  double comm(const Op& op) const {
    if (shape_.dp > 1) {
      return latency() + over(static_cast<double>(op.wire_bytes), rates_.comm_bps);
    }
    if (op.kind == OpKind::kReduceGrads) {
      double elems = 0;
      for (const BucketPiece& piece : program_.buckets[static_cast<std::size_t>(op.bucket)]) {
        elems += static_cast<double>(piece.elems);
      }
      return has_gradient_shard(shape_) ? adding(elems, op.accumulate ? 2 : 1, Tier::kDevice) : 0;
    }
    if (op.kind != OpKind::kGather || op.device_slot < 0) return 0;
    if (parameter_tier(shape_, op.group) != Tier::kDevice) return 0;
    const Buffer& slot = program_.buffers[static_cast<std::size_t>(op.device_slot)];
    return over(2 * static_cast<double>(slot.bytes), rates_.device_memory_bps);
  }
  // Of an update that speculation has done: 16-bit weights of what was read.
  double kept_update(const Chunk& chunk) const {
    const bool makes =
        shape_.dtype != DType::kFloat32 && parameter_tier(shape_, chunk.group) != Tier::kNvme;
    const auto element_bytes = static_cast<double>(4 + size_of(shape_.dtype));
    return makes ? over(static_cast<double>(chunk.elems) * element_bytes, rates_.host_memory_bps)
                 : 0;
  }
  double host(const Op& op) const {
    const Chunk& chunk = program_.chunks[static_cast<std::size_t>(op.chunk)];
    const auto elems = static_cast<double>(chunk.elems);
    if (op.kind == OpKind::kUpdate && chunk.speculated && !op.speculative) {
      return kept_update(chunk);
    }
    if (op.kind == OpKind::kUpdate) return over(adamw_updates(shape_, elems), rates_.host_adam);
    return over(4 * elems * gradient_streams(shape_, chunk.group), rates_.host_memory_bps);
  }

  const Program& program_;
  const StepShape& shape_;
  const Rates& rates_;
};

}  // namespace

bool writes_disk(OpKind kind) {
  return kind == OpKind::kWriteStates || kind == OpKind::kWriteParams ||
         kind == OpKind::kWriteBucket || kind == OpKind::kWriteInput || kind == OpKind::kCommit;
}

std::vector<double> op_seconds(const Program& program, const StepShape& shape, const Rates& rates) {
  const Pricing pricing(program, shape, rates);
  std::vector<double> seconds;
  seconds.reserve(program.ops.size());
  for (const Op& op : program.ops) seconds.push_back(pricing.seconds(op));
  return seconds;
}

TimeReport predict_time(const Program& program, const StepShape& shape, const Rates& rates) {
  return schedule(program, op_seconds(program, shape, rates), rates.disk_duplex,
                  rates.shared_cores);
}

Traffic traffic_of(const Program& program) {
  Traffic traffic;
  for (const Op& op : program.ops) {
    if (op.lane == Lane::kPipe) {
      traffic.pipe += op.wire_bytes;
    } else {
      (op.kind == OpKind::kAddReplicas ? traffic.replicas : traffic.wire) += op.wire_bytes;
    }
    traffic.tensor += op.tensor_bytes;
    if (op.lane == Lane::kToHost) traffic.to_host += op.moved_bytes;
    if (op.lane == Lane::kToDevice) traffic.to_device += op.moved_bytes;
    if (op.lane != Lane::kDisk) continue;
    (writes_disk(op.kind) ? traffic.disk_written : traffic.disk_read) += op.moved_bytes;
  }
  return traffic;
}

}  // namespace sluice
