#include "runtime/program/model/lane_schedule.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"

namespace sluice {
namespace {

std::size_t index(Lane lane) { return static_cast<std::size_t>(lane); }

}  // namespace

LaneSchedule::LaneSchedule(const Program& program, std::span<const double> seconds, double duplex,
                           PeerStages* peers)
    : program_(program), seconds_(seconds), peers_(peers), limit_(program.ops.size(), -1) {
  report_.timeline.resize(program.ops.size());
  bool reads = false;
  for (const Op& op : program.ops) {
    if (op.lane == Lane::kComm && !op.waits.empty()) wire_has_thread_ = true;
    if (op.lane != Lane::kDisk) continue;
    (writes_disk(op.kind) ? disk_writes_ : reads) = true;
  }
  // A program with only one direction cannot lose rate to the other direction.
  duplex_ = reads && disk_writes_ ? duplex : std::max(1.0, duplex);
}

bool LaneSchedule::advance() {
  const std::size_t before = next_;
  for (; next_ < program_.ops.size() && may_go_on(next_); ++next_) {
    const Op& op = program_.ops[next_];
    if (op.lane == Lane::kCompute) {
      compute(next_);
    } else if (op.lane == Lane::kPipe) {
      cross(next_);
      if (peers_ != nullptr) continue;
    } else {
      issue(next_);
    }
    last_.later(report_.timeline[next_].end, static_cast<OpId>(next_));
  }
  return next_ > before;
}

TimeReport LaneSchedule::report(bool shared_cores) {
  for (std::size_t i = 0; peers_ != nullptr && i < program_.ops.size(); ++i) {
    if (program_.ops[i].lane == Lane::kPipe) {
      last_.later(report_.timeline[i].end, static_cast<OpId>(i));
    }
  }
  blame(last_.by, clock_, last_.at);
  report_.step_s = last_.at;
  add_busy();
  if (shared_cores) {
    double cores = 0;
    for (const Lane lane :
         {Lane::kCompute, Lane::kComm, Lane::kHost, Lane::kToHost, Lane::kToDevice}) {
      cores += report_.busy[index(lane)];
    }
    if (cores >= report_.busy[index(Lane::kDisk)]) report_.limiting = Lane::kCompute;
    report_.step_s = std::max(report_.step_s, cores);
  }
  return std::move(report_);
}

// Whether the end times of all messages that the compute operation waits for are known.
bool LaneSchedule::may_go_on(std::size_t i) {
  const Op& op = program_.ops[i];
  if (peers_ == nullptr || op.lane != Lane::kCompute) return true;
  for (const OpId w : op.waits) {
    if (nth(program_.ops, w).lane != Lane::kPipe) continue;
    const std::optional<double> end = peers_->end_of(w);
    if (!end) return false;
    nth(report_.timeline, w).end = *end;
  }
  if (!meets_all(op.kind)) return true;
  met_ = peers_->meet(static_cast<OpId>(i), std::max(clock_, ready(op).at));
  return met_.has_value();
}

LaneSchedule::Instant LaneSchedule::ready(const Op& op) const {
  Instant latest;
  for (const OpId w : op.waits) {
    latest.later(nth(report_.timeline, w).end, w);
  }
  return latest;
}

void LaneSchedule::compute(std::size_t i) {
  const Op& op = program_.ops[i];
  const Instant needed = ready(op);
  if (needed.at > clock_) blame(needed.by, clock_, needed.at);
  double begin = std::max(clock_, needed.at);
  if (meets_all(op.kind) && met_ && *met_ > begin) {
    report_.waiting[index(Lane::kPipe)] += *met_ - begin;
    begin = *met_;
  }
  clock_ = begin + seconds_[i];
  report_.timeline[i] = {begin, clock_};
}

// The executing thread starts a message at its issue. Each kind of message has its own wire.
void LaneSchedule::cross(std::size_t i) {
  const Op& op = program_.ops[i];
  report_.timeline[i] = {clock_, clock_};
  if (peers_ != nullptr) return peers_->issued(static_cast<OpId>(i), clock_);
  double& wire = nth(pipes_, pipe_wire(op.kind));
  wire = std::max(clock_, wire) + seconds_[i];
  report_.timeline[i].end = wire;
}

void LaneSchedule::issue(std::size_t i) {
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

// Queues the transfer in its direction and in the shared disk. Returns the end of the transfer.
double LaneSchedule::transfer(OpId id, Instant& begin) {
  const auto i = static_cast<std::size_t>(id);
  Instant& own = directions_[writes_disk(program_.ops[i].kind) ? 1 : 0];
  const double shared_end = std::max(begin.at, disk_.at) + seconds_[i] / duplex_;
  begin.later(own.at, own.by);
  own = {begin.at + seconds_[i], id};
  disk_ = {shared_end, id};
  return std::max(own.at, shared_end);
}

// Compute waits in [from, to) for `by`, which ends at `to`. Each part of the wait is counted for
// the lane that works in that part, along the operations that delay `by`.
void LaneSchedule::blame(OpId by, double from, double to) {
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

void LaneSchedule::add_busy() {
  std::array<double, 2> disk{};  // reads, writes
  std::array<double, 2> pipe{};  // receives, sends
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    const Op& op = program_.ops[i];
    if (op.lane == Lane::kDisk) {
      disk[writes_disk(op.kind) ? 1 : 0] += seconds_[i];
    } else if (op.lane == Lane::kPipe) {
      pipe[is_send(op.kind) ? 1 : 0] += seconds_[i];
    } else {
      report_.busy[index(op.lane)] += seconds_[i];
    }
  }
  report_.busy[index(Lane::kDisk)] = std::max({disk[0], disk[1], (disk[0] + disk[1]) / duplex_});
  report_.busy[index(Lane::kPipe)] = std::max(pipe[0], pipe[1]);
  const auto busiest = std::max_element(report_.busy.begin(), report_.busy.end());
  report_.limiting = static_cast<Lane>(busiest - report_.busy.begin());
}

TimeReport schedule(const Program& program, std::span<const double> seconds, double disk_duplex,
                    bool shared_cores) {
  check(seconds.size() == program.ops.size(), "a duration for each operation");
  check(disk_duplex > 0, "a disk's duplex factor is above 0");
  LaneSchedule lanes(program, seconds, disk_duplex, nullptr);
  lanes.advance();
  return lanes.report(shared_cores);
}

}  // namespace sluice
