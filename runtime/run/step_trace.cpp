#include "runtime/run/step_trace.hpp"

#include <algorithm>
#include <chrono>
#include <map>

#include "base/index.hpp"

namespace sluice {
namespace {

constexpr const char* kTensorLane = "tensor";

// Slices of a track must not overlap: each slice begins after the slice before has ended.
class Tracks {
 public:
  // Microseconds.
  void add(TraceEvent event, double begin, double end) {
    double& free = free_at_[event.lane];
    event.start_us = std::min(end, std::max(begin, free));
    event.duration_us = end - event.start_us;
    free = std::max(free, end);  // the disk may end a later transfer first
    events_.push_back(std::move(event));
  }
  std::vector<TraceEvent> take() { return std::move(events_); }

 private:
  std::vector<TraceEvent> events_;
  std::map<std::string, double> free_at_;
};

// Each wire between stages has a lane, because wires work at the same time.
std::string lane_name(const Op& op) {
  switch (op.kind) {
    case OpKind::kSendActivation:
      return "pipe activations out";
    case OpKind::kReceiveActivation:
      return "pipe activations in";
    case OpKind::kSendGradient:
      return "pipe gradients out";
    case OpKind::kReceiveGradient:
      return "pipe gradients in";
    default:
      return std::string(name_of(op.lane));
  }
}

TraceEvent event_of(const Program& program, const Op& op, const std::string& lane) {
  TraceEvent event{describe(op), lane, 0, 0, 0, {}};
  const std::int64_t sent = sent_bytes(program, op);
  if (sent > 0) event.args.emplace_back(op.exchanges >= 0 ? "exchanged_bytes" : "wire_bytes", sent);
  if (op.moved_bytes > 0) event.args.emplace_back("moved_bytes", op.moved_bytes);
  if (op.workspace_bytes > 0) event.args.emplace_back("workspace_bytes", op.workspace_bytes);
  return event;
}

// Microseconds on the clock of OpTiming.
double microseconds(std::chrono::steady_clock::time_point at) {
  return std::chrono::duration<double, std::micro>(at.time_since_epoch()).count();
}

// A GPU may begin its first operation after the host's lanes have begun theirs.
double first_us(const std::vector<OpTiming>& timings) {
  std::int64_t first = timings.front().wait_us;
  for (const OpTiming& timing : timings) {
    first = std::min({first, timing.wait_us, timing.begin_us});
    if (timing.lane_end_us > 0) first = std::min(first, timing.lane_begin_us);
  }
  return static_cast<double>(first);
}

void add_exchanges(Tracks& tracks, const Program& program,
                   std::span<const ExchangeTiming> exchanges, double zero) {
  for (const ExchangeTiming& exchange : exchanges) {
    const Op& op = nth(program.ops, exchange.op);
    const double end = microseconds(exchange.finished);
    TraceEvent event{exchange.name + ", " + describe(op), kTensorLane, 0, 0, 0, {}};
    event.args.emplace_back("wire_bytes", exchange.what.bytes);
    event.args.emplace_back("waited_us", end - microseconds(exchange.needed));
    tracks.add(std::move(event), microseconds(exchange.started) - zero, end - zero);
  }
}

}  // namespace

// Each direction of the disk has a track, because both run at the same time.
std::vector<TraceEvent> predicted_events(const Program& program, const TimeReport& predicted) {
  Tracks tracks;
  for (std::size_t i = 0; i < program.ops.size() && i < predicted.timeline.size(); ++i) {
    const Op& op = program.ops[i];
    const OpInterval& interval = predicted.timeline[i];
    if (interval.end <= interval.begin) continue;
    std::string lane = lane_name(op);
    if (op.lane == Lane::kDisk) lane += writes_disk(op.kind) ? " write" : " read";
    TraceEvent event = event_of(program, op, lane);
    event.rank = kPredictedProcess;
    tracks.add(std::move(event), interval.begin * 1e6, interval.end * 1e6);
  }
  for (const ExchangeInterval& interval : predicted.exchanges) {
    const Op& op = nth(program.ops, interval.op);
    const Exchange& what = nth(exchanges_of(program, op), interval.index);
    TraceEvent event{describe(what) + ", " + describe(op), kTensorLane, 0, 0, 0, {}};
    event.rank = kPredictedProcess;
    event.args.emplace_back("wire_bytes", what.bytes * what.times);
    tracks.add(std::move(event), interval.begin * 1e6, interval.end * 1e6);
  }
  return tracks.take();
}

std::vector<TraceEvent> measured_events(const Program& program,
                                        const std::vector<OpTiming>& timings,
                                        std::span<const ExchangeTiming> exchanges) {
  Tracks tracks;
  if (timings.empty()) return {};
  const double zero = first_us(timings);
  for (std::size_t i = 0; i < timings.size() && i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const auto wait = static_cast<double>(timings[i].wait_us) - zero;
    const auto begin = static_cast<double>(timings[i].begin_us) - zero;
    if (!op.waits.empty() && begin - wait >= 1) {
      tracks.add({"wait for " + describe(op), "wait", 0, 0, 0, {}}, wait, begin);
    }
    if (op.lane != Lane::kCompute && timings[i].lane_end_us > 0) {
      tracks.add(event_of(program, op, lane_name(op)),
                 static_cast<double>(timings[i].lane_begin_us) - zero,
                 static_cast<double>(timings[i].lane_end_us) - zero);
    } else {
      tracks.add(event_of(program, op, op.lane == Lane::kCompute ? "compute" : "issue"), begin,
                 static_cast<double>(timings[i].end_us) - zero);
    }
  }
  add_exchanges(tracks, program, exchanges, zero);
  return tracks.take();
}

namespace {

// Lanes from top to bottom.
TraceLayout step_layout() {
  TraceLayout layout;
  layout.lanes = {"compute",
                  "wait",
                  "comm",
                  kTensorLane,
                  "pipe activations in",
                  "pipe activations out",
                  "pipe gradients in",
                  "pipe gradients out",
                  "host",
                  "d2h",
                  "h2d",
                  "disk"};
  layout.process_names[kPredictedProcess] = "predicted";
  return layout;
}

}  // namespace

void write_plan_trace(const std::string& path, const Program& program,
                      const TimeReport& predicted) {
  if (program.ops.size() > kMostPlannedOps) return;
  write_trace(path, predicted_events(program, predicted), step_layout());
}

void write_step_trace(const std::string& path, const Program& program,
                      const std::vector<OpTiming>& timings, const TimeReport* predicted,
                      std::span<const ExchangeTiming> exchanges) {
  std::vector<TraceEvent> events = measured_events(program, timings, exchanges);
  if (predicted != nullptr) {
    for (TraceEvent& event : predicted_events(program, *predicted)) {
      events.push_back(std::move(event));
    }
  }
  write_trace(path, events, step_layout());
}

}  // namespace sluice
