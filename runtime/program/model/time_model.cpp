#include "runtime/program/model/time_model.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/index.hpp"

namespace sluice {
namespace {

double over(double amount, double rate) { return rate > 0 ? amount / rate : 0; }
double or_else(double rate, double other) { return rate > 0 ? rate : other; }

// Computes the seconds of single operations.
class Pricing {
 public:
  Pricing(const Program& program, const StepShape& shape, const Rates& rates)
      : program_(program), shape_(shape), rates_(rates) {}

  // Of a deferred operation on a chunk without a kept speculative update.
  double not_kept(const Op& op) const {
    const auto elems = static_cast<double>(nth(program_.chunks, op.chunk).elems);
    if (op.kind == OpKind::kUpdate) return over(adamw_updates(shape_, elems), rates_.host_adam);
    if (op.kind == OpKind::kCopyGrads) return over(4 * elems, rates_.d2h_bps);
    if (op.kind == OpKind::kCopyParams) {
      return over(static_cast<double>(size_of(shape_.dtype)) * elems, rates_.h2d_bps);
    }
    return seconds(op);
  }

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
        return over(static_cast<double>(op.moved_bytes), rates_.d2h_bps) + rounding_grads(op);
      case Lane::kToDevice:
        return over(static_cast<double>(op.moved_bytes), rates_.h2d_bps);
      case Lane::kDisk:
        return over(static_cast<double>(op.moved_bytes),
                    writes_disk(op.kind) ? rates_.disk_write_bps : rates_.disk_read_bps);
    }
    return 0;
  }

  // Covers all `times` of the exchange. On one host the computing cores also copy, so computation
  // beside an exchange hides none of it.
  double seconds(const Exchange& exchange) const {
    const int collectives = exchange.kind == ExchangeKind::kAllReduce ? 2 : 1;
    const double each = collectives * rates_.comm_latency_s * std::log2(ranks_of(exchange.ranks)) +
                        over(static_cast<double>(exchange.bytes), exchange_bps(exchange.ranks));
    return each * static_cast<double>(exchange.times);
  }

 private:
  double exchanges(const Op& op) const {
    double sum = 0;
    for (const Exchange& exchange : exchanges_of(program_, op)) sum += seconds(exchange);
    return sum;
  }
  double latency() const {
    return shape_.dp > 1 ? rates_.comm_latency_s * std::log2(shape_.dp) : 0;
  }
  double bytes_of(const std::vector<BufferId>& buffers) const {
    double bytes = 0;
    for (const BufferId id : buffers) {
      const Buffer& buffer = nth(program_.buffers, id);
      const bool made = buffer.tag == Tag::kActivations || buffer.tag == Tag::kActivationGradients;
      if (made && buffer.tier == Tier::kDevice) bytes += static_cast<double>(buffer.bytes);
    }
    return bytes;
  }
  // Seconds to sum `elems` gradients: read from `from` arrays, written to one array.
  double adding(double elems, int from, Tier tier) const {
    return over(4 * elems * (from + 1),
                tier == Tier::kDevice ? rates_.device_memory_bps : rates_.host_memory_bps);
  }

  double measured(const Op& op, const UnitSeconds& unit) const {
    if (op.kind == OpKind::kForward) return unit.forward;
    if (op.kind == OpKind::kLossHead) return op.save ? unit.backward : unit.forward;
    // Both parts of a split backward have the same number of products.
    const bool half = op.split || op.kind == OpKind::kBackwardWeights;
    return unit.backward * (half ? 0.5 : 1) + (op.recompute ? unit.forward : 0);
  }
  // Bytes of gradients that a unit without products (an embedding) first fills with zeroes.
  double opened_bytes(const Op& op) const {
    double elems = 0;
    for (const int g : op.opens) {
      elems += static_cast<double>(nth(shape_.groups, g).elems);
    }
    return op.flops > 0 ? 0 : 4 * elems;
  }

  // The part of a split backward that waits for no gradient has no attention.
  double score_bytes(const Op& op) const {
    const UnitShape& unit = nth(shape_.units, op.unit);
    if (op.kind == OpKind::kForward) return unit.forward_score_bytes;
    if (op.kind != OpKind::kBackward) return 0;
    return unit.backward_score_bytes + (op.recompute ? unit.forward_score_bytes : 0);
  }

  // A unit's results are written once and read once. Backward also reads the kept activations.
  double unit(const Op& op) const {
    if (!rates_.units.empty()) {
      const UnitSeconds& known = nth(rates_.units, op.unit);
      if (known.known) return measured(op, known) + exchanges(op);
    }
    double bytes = score_bytes(op) + opened_bytes(op) +
                   2 * (bytes_of(op.live) + static_cast<double>(op.workspace_bytes));
    if (op.kind == OpKind::kBackward || op.kind == OpKind::kBackwardWeights) {
      bytes += bytes_of(op.dead_after);
    }
    return over(op.flops, rates_.flops) + over(bytes, rates_.device_memory_bps) + exchanges(op);
  }
  double exchange_bps(ExchangeRanks ranks) const {
    switch (ranks) {
      case ExchangeRanks::kTensor:
        return or_else(rates_.tensor_bps, rates_.comm_bps);
      case ExchangeRanks::kEnds:
        return or_else(rates_.pipe_bps, rates_.comm_bps);
      case ExchangeRanks::kWorld:
        return rates_.comm_bps;
    }
    return 0;
  }
  int ranks_of(ExchangeRanks ranks) const {
    const int count = ranks == ExchangeRanks::kTensor  ? shape_.tensor
                      : ranks == ExchangeRanks::kWorld ? shape_.world()
                                                       : 2;
    return std::max(2, count);
  }
  // A gather that makes parameters of master weights reads those and writes the rank's part.
  double rounding(const Op& op) const {
    if (op.kind != OpKind::kGather || !rounds_master(shape_, op.group)) return 0;
    const std::int64_t bytes = 4 + size_of(shape_.dtype);
    const std::int64_t elems = nth(shape_.groups, op.group).shard_elems;
    return over(static_cast<double>(bytes * elems), rates_.device_memory_bps);
  }
  // On a CPU the random bits of bf16 moments take the time that their bytes save.
  double updates_on_device(int group) const {
    const DType moments = shape_.on_gpu ? shape_.placement.moments_dtype : DType::kFloat32;
    return adamw_updates(shape_, static_cast<double>(device_elems(shape_, group)), moments);
  }
  // The device rounds reduced gradients before their copy: it reads 4 bytes and writes 2.
  double rounding_grads(const Op& op) const {
    if (op.kind != OpKind::kStoreGrads) return 0;
    double bytes = 0;
    for (const BucketPiece& piece : nth(program_.buckets, op.bucket)) {
      const DType dtype = gradient_dtype(shape_, piece.group);
      if (dtype != DType::kFloat32)
        bytes += static_cast<double>(piece.elems * (4 + size_of(dtype)));
    }
    return over(bytes, rates_.device_memory_bps);
  }
  double compute(const Op& op) const {
    switch (op.kind) {
      case OpKind::kGather:
        return rounding(op);
      case OpKind::kForward:
      case OpKind::kLossHead:
      case OpKind::kBackward:
      case OpKind::kBackwardWeights:
        return unit(op);
      case OpKind::kUpdate:
        return over(updates_on_device(op.group), rates_.device_adam) +
               (op.in_backward ? squares(op.group) : 0);
      case OpKind::kRoundGrads: {  // reads 4 bytes
        const std::int64_t elems = owned_elems(shape_, op.group);
        const std::int64_t bytes = 4 * elems + gradient_bytes(shape_, op.group, elems);
        return over(static_cast<double>(bytes), rates_.device_memory_bps);
      }
      case OpKind::kAddGrads: {
        const auto elems = static_cast<double>(nth(shape_.groups, op.group).shard_elems);
        const int streams = gradient_streams(shape_, op.group);
        return (streams - 1) * adding(elems, 2, shape_.placement.gradients);
      }
      case OpKind::kAddReplicas:
        return replicas(op);
      case OpKind::kNormAndScale:
        return norm(op);
      case OpKind::kMeet:
        return exchanges(op);
      default:
        return 0;
    }
  }
  double replicas(const Op& op) const {
    const auto elems = static_cast<double>(owned_elems(shape_, op.group));
    return exchanges(op) + adding(elems, 2, shape_.placement.gradients);
  }
  // The norm sums the squares that are not summed chunk by chunk.
  double norm(const Op& op) const {
    std::vector<bool> summed(shape_.groups.size(), false);
    for (const Op& other : program_.ops) {
      const bool sums = other.kind == OpKind::kSumSquares || other.in_backward;
      if (sums) summed[static_cast<std::size_t>(other.group)] = true;
    }
    double seconds = exchanges(op);
    for (int g = 0; g < static_cast<int>(shape_.groups.size()); ++g) {
      if (!is_frozen(shape_, g) && !summed[static_cast<std::size_t>(g)]) seconds += squares(g);
    }
    return seconds;
  }
  // Summing the squares of the owned elements of a group's gradients.
  double squares(int g) const {
    const std::int64_t bytes = gradient_bytes(shape_, g, owned_elems(shape_, g));
    return adding(static_cast<double>(bytes) / 4, 0, shape_.placement.gradients);
  }
  // A single rank copies or adds the data that several ranks would send.
  double comm(const Op& op) const {
    if (shape_.dp > 1) {
      return latency() + rounding(op) + over(static_cast<double>(op.wire_bytes), rates_.comm_bps);
    }
    if (op.kind == OpKind::kReduceGrads) {
      double elems = 0;
      for (const BucketPiece& piece : nth(program_.buckets, op.bucket)) {
        elems += static_cast<double>(piece.elems);
      }
      return has_gradient_shard(shape_) ? adding(elems, op.accumulate ? 2 : 1, Tier::kDevice) : 0;
    }
    if (op.kind != OpKind::kGather || op.device_slot < 0) return 0;
    if (parameter_tier(shape_, op.group) != Tier::kDevice) return 0;
    const Buffer& slot = nth(program_.buffers, op.device_slot);
    return over(2 * static_cast<double>(slot.bytes), rates_.device_memory_bps);
  }
  double kept_update(const Chunk& chunk) const {
    const std::int64_t bytes = chunk.elems * kept_update_bytes(shape_, chunk.group);
    return over(static_cast<double>(bytes), rates_.host_memory_bps);
  }
  double host(const Op& op) const {
    const Chunk& chunk = nth(program_.chunks, op.chunk);
    if (op.kind != OpKind::kUpdate) {
      const std::int64_t bytes = gradient_bytes(shape_, chunk.group, chunk.elems);
      return over(static_cast<double>(bytes * gradient_streams(shape_, chunk.group)),
                  rates_.host_memory_bps);
    }
    if (chunk.speculated && !op.speculative) return kept_update(chunk);
    const bool elsewhere = op.speculative && shape_.placement.optimizer == Tier::kHost;
    return (elsewhere ? kUpdateElsewhere : 1) * not_kept(op);
  }

  const Program& program_;
  const StepShape& shape_;
  const Rates& rates_;
};

bool speculates_on_host(const Program& program, const StepShape& shape) {
  return shape.placement.optimizer == Tier::kHost &&
         std::any_of(program.chunks.begin(), program.chunks.end(),
                     [](const Chunk& chunk) { return chunk.speculated; });
}

// The chunks whose speculative update begins after the last backward.
std::vector<bool> late_chunks(const Program& program, std::span<const OpInterval> timeline) {
  double backward_end = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind == OpKind::kNormAndScale) backward_end = timeline[i].begin;
  }
  std::vector<bool> late(program.chunks.size(), false);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (op.kind != OpKind::kUpdate || !op.speculative) continue;
    nth(late, op.chunk) = timeline[i].begin > backward_end;
  }
  return late;
}

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
  if (!speculates_on_host(program, shape)) return seconds;
  const std::vector<bool> late =
      late_chunks(program, schedule(program, seconds, rates.disk_duplex).timeline);
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const Op& op = program.ops[i];
    if (op.chunk < 0 || !nth(late, op.chunk)) continue;
    seconds[i] = op.speculative ? 0 : pricing.not_kept(op);
  }
  return seconds;
}

TimeReport predict_time(const Program& program, const StepShape& shape, const Rates& rates) {
  TimeReport report =
      schedule(program, op_seconds(program, shape, rates), rates.disk_duplex, rates.shared_cores);
  report.exchanges = place_exchanges(program, shape, rates, report.timeline);
  return report;
}

std::vector<ExchangeInterval> place_exchanges(const Program& program, const StepShape& shape,
                                              const Rates& rates,
                                              std::span<const OpInterval> timeline) {
  check(timeline.size() == program.ops.size(), "an interval for each operation");
  const Pricing pricing(program, shape, rates);
  std::vector<ExchangeInterval> placed;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const std::span<const Exchange> list = exchanges_of(program, program.ops[i]);
    if (program.ops[i].unit < 0 || list.empty()) continue;
    const auto taken = [&](const Exchange& e) { return pricing.seconds(e) * rates.compute_factor; };
    double computing = timeline[i].end - timeline[i].begin;
    for (const Exchange& exchange : list) computing -= taken(exchange);
    double at = timeline[i].begin;
    for (std::size_t n = 0; n < list.size(); ++n) {
      at += std::max(0.0, computing) / static_cast<double>(list.size());
      const double end = at + taken(list[n]);
      placed.push_back({static_cast<OpId>(i), static_cast<int>(n), at, end});
      at = end;
    }
  }
  return placed;
}

namespace {

void add_exchanges(const Program& program, const Op& op, Traffic& traffic) {
  for (const Exchange& exchange : exchanges_of(program, op)) {
    std::int64_t& sent = exchange.ranks == ExchangeRanks::kWorld  ? traffic.world
                         : exchange.ranks == ExchangeRanks::kEnds ? traffic.ends
                         : op.unit >= 0                           ? traffic.tensor
                                                                  : traffic.replicas;
    sent += exchange.bytes * exchange.times;
  }
}

}  // namespace

Traffic traffic_of(const Program& program) {
  Traffic traffic;
  for (const Op& op : program.ops) {
    (op.lane == Lane::kPipe ? traffic.pipe : traffic.wire) += op.wire_bytes;
    add_exchanges(program, op, traffic);
    if (op.lane == Lane::kToHost) traffic.to_host += op.moved_bytes;
    if (op.lane == Lane::kToDevice) traffic.to_device += op.moved_bytes;
    if (op.lane != Lane::kDisk) continue;
    (writes_disk(op.kind) ? traffic.disk_written : traffic.disk_read) += op.moved_bytes;
  }
  return traffic;
}

}  // namespace sluice
