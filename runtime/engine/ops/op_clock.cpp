#include "runtime/engine/ops/op_clock.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice {
namespace {

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A communicator runs the messages on a stream of its own.
bool communicates(const Op& op) { return op.lane == Lane::kComm || op.lane == Lane::kPipe; }

bool runs_on_device(const Op& op) { return op.lane != Lane::kHost && op.lane != Lane::kDisk; }

std::int64_t whole(double us) { return std::llround(us); }

}  // namespace

void OpClock::begin_program(const Program& program, bool step) {
  active_ = step;
  if (!step) return;
  if (program_ != &program) make_events(program);
  ++steps_;
  turn_ = 1 - turn_;
  stamped_ = 0;
  const auto turn = static_cast<std::size_t>(turn_);
  base_us_[turn] = now_us();
  base_[turn]->record();
}

void OpClock::make_events(const Program& program) {
  program_ = &program;
  steps_ = 0;
  const auto& ops = program.ops;
  const auto norm = std::find_if(ops.begin(), ops.end(),
                                 [](const Op& op) { return op.kind == OpKind::kNormAndScale; });
  norm_ = static_cast<std::size_t>(norm - ops.begin());
  times_.assign(ops.size(), std::nullopt);
  const auto events_for = [this](auto first, auto last) {
    std::vector<OpEvents> made;
    for (auto op = first; op != last; ++op) {
      OpEvents& of = made.emplace_back();
      if (!runs_on_device(*op)) continue;
      if (op->lane == Lane::kCompute && !op->waits.empty()) of.wait = events_->make();
      of.begin = events_->make();
      of.end = events_->make();
    }
    return made;
  };
  head_ = events_for(ops.begin(), norm);
  for (auto& tail : tail_) tail = events_for(norm, ops.end());
  for (Event& base : base_) base = events_->make();
  reference_ = events_->make();
}

OpClock::OpEvents& OpClock::events_of(std::size_t op, int turn) {
  return op < norm_ ? head_[op] : tail_[static_cast<std::size_t>(turn)][op - norm_];
}

OpClock::OpEvents& OpClock::events_of(const Op& op) {
  return events_of(static_cast<std::size_t>(&op - program_->ops.data()), turn_);
}

void OpClock::waits(const Op& op) {
  if (active_ && runs_on_device(op)) events_of(op).wait->record();
}

void OpClock::begins(const Op& op) {
  if (!active_ || !runs_on_device(op)) return;
  OpEvents& events = events_of(op);
  if (communicates(op)) {
    events_->follow_calls(*events.begin, *events.end);
  } else {
    events.begin->record();
  }
}

void OpClock::ends(const Op& op) {
  if (!active_ || !runs_on_device(op)) return;
  OpEvents& events = events_of(op);
  if (communicates(op)) {
    if (events_->leave_calls()) return;
    events.begin->record();  // nothing was to be sent
  }
  events.end->record();
}

void OpClock::read() {
  if (!active_) return;
  read(0, norm_, turn_);
  if (steps_ > 1) read(norm_, times_.size(), 1 - turn_);
}

// An operation whose events have not completed keeps the host's times. The operation that runs now
// keeps them too: its end event was recorded in an earlier step.
void OpClock::read(std::size_t first, std::size_t end, int turn) {
  const auto t = static_cast<std::size_t>(turn);
  const DeviceEvent& base = *base_[t];
  const auto host_us = [&](double ms) { return base_us_[t] + 1e3 * ms; };
  for (std::size_t i = first; i < end; ++i) {
    times_[i].reset();
    const OpEvents& events = events_of(i, turn);
    if (!events.begin) continue;
    const std::optional<double> begin_ms = events.begin->ms_after(base);
    const std::optional<double> end_ms = events.end->ms_after(base);
    if (!begin_ms || !end_ms || *end_ms < *begin_ms) continue;
    const std::optional<double> wait_ms = events.wait ? events.wait->ms_after(base) : begin_ms;
    times_[i] = {host_us(std::min(wait_ms.value_or(*begin_ms), *begin_ms)), host_us(*begin_ms),
                 host_us(*end_ms)};
  }
}

void OpClock::apply(std::vector<OpTiming>& timings) const {
  for (std::size_t i = 0; i < timings.size() && i < times_.size(); ++i) {
    const std::optional<OpTimes>& times = times_[i];
    if (!times) continue;
    OpTiming& timing = timings[i];
    if (program_->ops[i].lane == Lane::kCompute) {
      timing.wait_us = whole(times->wait_us);
      timing.begin_us = whole(times->begin_us);
      timing.end_us = whole(times->end_us);
    } else {
      timing.lane_begin_us = whole(times->begin_us);
      timing.lane_end_us = whole(times->end_us);
    }
  }
}

void OpClock::wait_for_all() {
  const DeviceEvent& base = *base_[static_cast<std::size_t>(turn_)];
  for (std::size_t i = 0; i < times_.size(); ++i) {
    const Event& end = events_of(i, turn_).end;
    if (end && !end->ms_after(base)) end->wait();
  }
}

void OpClock::finish(std::vector<OpTiming>& timings, std::vector<ExchangeTiming>& exchanges) {
  if (program_ == nullptr) return;
  wait_for_all();
  const DeviceEvent& base = *base_[static_cast<std::size_t>(turn_)];
  double& base_us = base_us_[static_cast<std::size_t>(turn_)];
  // The stream is idle, so the event completes when it is recorded.
  const double idle_us = now_us();
  reference_->record();
  if (!reference_->ms_after(base)) reference_->wait();
  if (const auto ms = reference_->ms_after(base)) base_us = idle_us - 1e3 * *ms;
  read(0, times_.size(), turn_);
  apply(timings);
  const auto time_of = [&](TimePoint stamp) -> TimePoint {
    const Event& event = stamps_[static_cast<std::size_t>(stamp.time_since_epoch().count())];
    const double us = base_us + 1e3 * event->ms_after(base).value_or(0);
    return TimePoint(std::chrono::duration_cast<TimePoint::duration>(
        std::chrono::duration<double, std::micro>(us)));
  };
  for (ExchangeTiming& exchange : exchanges) {
    exchange.started = time_of(exchange.started);
    exchange.needed = time_of(exchange.needed);
    exchange.finished = time_of(exchange.finished);
  }
}

OpClock::TimePoint OpClock::stamp() {
  if (!active_) return std::chrono::steady_clock::now();
  if (stamped_ == stamps_.size()) stamps_.push_back(events_->make());
  stamps_[stamped_]->record();
  return TimePoint(TimePoint::duration(static_cast<std::int64_t>(stamped_++)));
}

}  // namespace sluice
