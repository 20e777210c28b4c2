#include "runtime/engine/step_trace.hpp"

#include <algorithm>
#include <array>

namespace sluice {
namespace {

TraceEvent event_of(const Op& op, const std::string& lane) {
  TraceEvent event{describe(op), lane, 0, 0, 0, {}};
  if (op.wire_bytes > 0) event.args.emplace_back("wire_bytes", op.wire_bytes);
  if (op.moved_bytes > 0) event.args.emplace_back("moved_bytes", op.moved_bytes);
  if (op.workspace_bytes > 0) event.args.emplace_back("workspace_bytes", op.workspace_bytes);
  return event;
}

}  // namespace

// Slices of a track must not overlap. The disk's directions run at the same time: a track each, on
// which a transfer begins where the one before has ended.
std::vector<TraceEvent> predicted_events(const Program& program, const TimeReport& predicted) {
  std::vector<TraceEvent> events;
  std::array<double, 2> free_at{};  // the disk's directions
  for (std::size_t i = 0; i < program.ops.size() && i < predicted.timeline.size(); ++i) {
    const Op& op = program.ops[i];
    const OpInterval& interval = predicted.timeline[i];
    if (interval.end <= interval.begin) continue;
    std::string lane(name_of(op.lane));
    double begin = interval.begin;
    if (op.lane == Lane::kDisk) {
      const bool writes = writes_disk(op.kind);
      lane += writes ? " write" : " read";
      begin = std::min(interval.end, std::max(begin, free_at[writes ? 1 : 0]));
      free_at[writes ? 1 : 0] = interval.end;
    }
    TraceEvent event = event_of(op, lane);
    event.rank = kPredictedProcess;
    event.start_us = begin * 1e6;
    event.duration_us = (interval.end - begin) * 1e6;
    events.push_back(std::move(event));
  }
  return events;
}

void write_step_trace(const std::string& path, const Program& program,
                      const std::vector<OpTiming>& timings, const TimeReport* predicted) {
  std::vector<TraceEvent> events;
  std::array<double, kLaneCount> free_at{};
  for (std::size_t i = 0; i < timings.size() && i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const double zero = static_cast<double>(timings.front().wait_us);
    const auto begin = static_cast<double>(timings[i].begin_us);
    const auto wait = static_cast<double>(timings[i].wait_us);
    if (begin - wait >= 1) {
      events.push_back({"wait for " + describe(op), "wait", 0, wait - zero, begin - wait, {}});
    }
    TraceEvent event = event_of(op, op.lane == Lane::kCompute ? "compute" : "issue");
    event.start_us = begin - zero;
    event.duration_us = static_cast<double>(timings[i].end_us) - begin;
    if (op.lane != Lane::kCompute && timings[i].lane_end_us > 0) {
      // One at a time is drawn: a transfer that shares its lane begins where the one before ended.
      double& free = free_at[static_cast<std::size_t>(op.lane)];
      const auto end = static_cast<double>(timings[i].lane_end_us) - zero;
      const double start =
          std::min(end, std::max(free, static_cast<double>(timings[i].lane_begin_us) - zero));
      free = std::max(free, end);  // the disk may end a later transfer first
      TraceEvent there = event;
      there.lane = std::string(name_of(op.lane));
      there.start_us = start;
      there.duration_us = end - start;
      events.push_back(std::move(there));
      continue;
    }
    events.push_back(std::move(event));
  }
  TraceLayout layout;
  layout.lanes = {"compute", "wait", "comm", "host", "d2h", "h2d", "disk"};
  layout.process_names[kPredictedProcess] = "predicted";
  if (predicted != nullptr) {
    for (TraceEvent& event : predicted_events(program, *predicted)) {
      events.push_back(std::move(event));
    }
  }
  write_trace(path, events, layout);
}

}  // namespace sluice
