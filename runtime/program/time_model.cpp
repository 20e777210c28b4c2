#include "runtime/program/time_model.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.hpp"

namespace sluice {
namespace {

double over(double amount, double rate) { return rate > 0 ? amount / rate : 0; }
std::size_t index(Lane lane) { return static_cast<std::size_t>(lane); }

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
    return unit.backward + (op.recompute ? unit.forward : 0);
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
      if (known.known) return measured(op, known);
    }
    double bytes =
        opened_bytes(op) + 2 * (bytes_of(op.live) + static_cast<double>(op.workspace_bytes));
    if (op.kind == OpKind::kBackward) bytes += bytes_of(op.dead_after);
    return over(op.flops, rates_.flops) + over(bytes, rates_.device_memory_bps);
  }
  double compute(const Op& op) const {
    switch (op.kind) {
      case OpKind::kForward:
      case OpKind::kLossHead:
      case OpKind::kBackward:
        return unit(op);
      case OpKind::kUpdate:
        return over(static_cast<double>(device_elems(shape_, op.group)), rates_.device_adam);
      case OpKind::kAddGrads: {
        const auto elems =
            static_cast<double>(shape_.groups[static_cast<std::size_t>(op.group)].shard_elems);
        const int streams = gradient_streams(shape_, op.group);
        return (streams - 1) * adding(elems, 2, shape_.placement.gradients);
      }
      case OpKind::kNormAndScale:
        return norm();
      default:
        return 0;
    }
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
  double host(const Op& op) const {
    const Chunk& chunk = program_.chunks[static_cast<std::size_t>(op.chunk)];
    const auto elems = static_cast<double>(chunk.elems);
    if (op.kind == OpKind::kUpdate) return over(elems, rates_.host_adam);
    return over(4 * elems * gradient_streams(shape_, chunk.group), rates_.host_memory_bps);
  }

  const Program& program_;
  const StepShape& shape_;
  const Rates& rates_;
};

// The instant the work so far is over, and the operation it ended with.
struct Instant {
  double at = 0;
  OpId by = -1;

  void later(double other, OpId other_by) {
    if (other > at) *this = {other, other_by};
  }
};

class Scheduler {
 public:
  Scheduler(const Program& program, std::span<const double> seconds, double duplex)
      : program_(program), seconds_(seconds), limit_(program.ops.size(), -1) {
    report_.timeline.resize(program.ops.size());
    bool reads = false;
    for (const Op& op : program.ops) {
      if (op.lane == Lane::kComm && !op.waits.empty()) wire_has_thread_ = true;
      if (op.lane != Lane::kDisk) continue;
      (writes_disk(op.kind) ? disk_writes_ : reads) = true;
    }
    // What both directions lose to each other is no business of one alone.
    duplex_ = reads && disk_writes_ ? duplex : std::max(1.0, duplex);
  }

  TimeReport run(bool shared_cores) {
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      if (program_.ops[i].lane == Lane::kCompute) {
        compute(i);
      } else {
        issue(i);
      }
      last_.later(report_.timeline[i].end, static_cast<OpId>(i));
    }
    blame(last_.by, clock_, last_.at);
    report_.step_s = last_.at;
    finish(shared_cores);
    return std::move(report_);
  }

 private:
  Instant ready(const Op& op) const {
    Instant latest;
    for (const OpId w : op.waits) {
      latest.later(report_.timeline[static_cast<std::size_t>(w)].end, w);
    }
    return latest;
  }

  void compute(std::size_t i) {
    const Instant needed = ready(program_.ops[i]);
    if (needed.at > clock_) blame(needed.by, clock_, needed.at);
    const double begin = std::max(clock_, needed.at);
    clock_ = begin + seconds_[i];
    report_.timeline[i] = {begin, clock_};
  }

  void issue(std::size_t i) {
    const Op& op = program_.ops[i];
    const auto id = static_cast<OpId>(i);
    Instant& thread = threads_[index(op.lane)];
    Instant begin{clock_, -1};
    const bool here = op.lane == Lane::kComm && !wire_has_thread_;
    if (!here) begin.later(thread.at, thread.by);
    const Instant needed = ready(op);
    begin.later(needed.at, needed.by);
    const double started = begin.at;
    double end = 0;
    if (op.lane == Lane::kDisk) {
      end = transfer(id, begin);
    } else {
      Instant& server = op.lane == Lane::kComm ? wire_ : thread;
      begin.later(server.at, server.by);
      end = begin.at + seconds_[i];
      server = {end, id};
    }
    if (op.lane == Lane::kDisk || op.lane == Lane::kComm) thread = {started, begin.by};
    report_.timeline[i] = {begin.at, end};
    limit_[i] = begin.by;
  }

  // Through its direction's queue, and through what both share.
  double transfer(OpId id, Instant& begin) {
    const auto i = static_cast<std::size_t>(id);
    Instant& own = directions_[writes_disk(program_.ops[i].kind) ? 1 : 0];
    const double shared_end = std::max(begin.at, disk_.at) + seconds_[i] / duplex_;
    begin.later(own.at, own.by);
    own = {begin.at + seconds_[i], id};
    disk_ = {shared_end, id};
    return std::max(own.at, shared_end);
  }

  // Compute waited in [from, to) for `by`, which ended then: each part of it goes to the lane that
  // was at work on the way there.
  void blame(OpId by, double from, double to) {
    while (by >= 0 && to > from) {
      const auto i = static_cast<std::size_t>(by);
      const double begin = std::max(from, report_.timeline[i].begin);
      if (begin < to) {
        report_.waiting[index(program_.ops[i].lane)] += to - begin;
        to = begin;
      }
      by = limit_[i];
    }
  }

  void finish(bool shared_cores) {
    double reads = 0;
    double writes = 0;
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      if (op.lane == Lane::kDisk) {
        (writes_disk(op.kind) ? writes : reads) += seconds_[i];
      } else {
        report_.busy[index(op.lane)] += seconds_[i];
      }
    }
    report_.busy[index(Lane::kDisk)] = std::max({reads, writes, (reads + writes) / duplex_});
    const auto busiest = std::max_element(report_.busy.begin(), report_.busy.end());
    report_.limiting = static_cast<Lane>(busiest - report_.busy.begin());
    if (!shared_cores) return;
    double cores = 0;
    for (const Lane lane :
         {Lane::kCompute, Lane::kComm, Lane::kHost, Lane::kToHost, Lane::kToDevice}) {
      cores += report_.busy[index(lane)];
    }
    if (cores >= report_.busy[index(Lane::kDisk)]) report_.limiting = Lane::kCompute;
    report_.step_s = std::max(report_.step_s, cores);
  }

  const Program& program_;
  std::span<const double> seconds_;
  double duplex_ = 1;
  bool wire_has_thread_ = false;
  bool disk_writes_ = false;
  double clock_ = 0;                                                     // of the compute lane
  std::array<Instant, static_cast<std::size_t>(kLaneCount)> threads_{};  // free to start the next
  Instant wire_;
  std::array<Instant, 2> directions_{};  // of the disk: reads, writes
  Instant disk_;
  Instant last_;
  std::vector<OpId> limit_;  // what an operation began after, where not after its issue
  TimeReport report_;
};

}  // namespace

bool writes_disk(OpKind kind) {
  return kind == OpKind::kWriteStates || kind == OpKind::kWriteParams ||
         kind == OpKind::kWriteBucket || kind == OpKind::kWriteInput;
}

std::vector<double> op_seconds(const Program& program, const StepShape& shape, const Rates& rates) {
  const Pricing pricing(program, shape, rates);
  std::vector<double> seconds;
  seconds.reserve(program.ops.size());
  for (const Op& op : program.ops) seconds.push_back(pricing.seconds(op));
  return seconds;
}

TimeReport schedule(const Program& program, std::span<const double> seconds, double disk_duplex,
                    bool shared_cores) {
  check(seconds.size() == program.ops.size(), "a duration for each operation");
  check(disk_duplex > 0, "a disk's duplex factor is above 0");
  return Scheduler(program, seconds, disk_duplex).run(shared_cores);
}

TimeReport predict_time(const Program& program, const StepShape& shape, const Rates& rates) {
  return schedule(program, op_seconds(program, shape, rates), rates.disk_duplex,
                  rates.shared_cores);
}

Traffic traffic_of(const Program& program) {
  Traffic traffic;
  for (const Op& op : program.ops) {
    traffic.wire += op.wire_bytes;
    if (op.lane == Lane::kToHost) traffic.to_host += op.moved_bytes;
    if (op.lane == Lane::kToDevice) traffic.to_device += op.moved_bytes;
    if (op.lane != Lane::kDisk) continue;
    (writes_disk(op.kind) ? traffic.disk_written : traffic.disk_read) += op.moved_bytes;
  }
  return traffic;
}

}  // namespace sluice
