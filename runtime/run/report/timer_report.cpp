#include "runtime/run/report/timer_report.hpp"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

namespace sluice {
namespace {

constexpr std::array<std::string_view, TimerReport::kTimers> kNames = {
    "step", "forward", "backward", "comm", "optimizer", "io", "data"};

std::string ms_text(double ms) {
  char digits[32];
  std::snprintf(digits, sizeof digits, ms < 9.95 ? "%.1f" : "%.0f", ms);
  return digits;
}

}  // namespace

std::string format_timers(std::span<const double> means_ms, std::int64_t steps) {
  const std::size_t ranks = means_ms.size() / TimerReport::kTimers;
  std::string line =
      " timers of " + std::to_string(steps) + " steps, ms: step " + ms_text(means_ms[0]);
  for (std::size_t timer = 1; timer < TimerReport::kTimers; ++timer) {
    double sum = 0, least = means_ms[timer], most = least;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const double value = means_ms[rank * TimerReport::kTimers + timer];
      sum += value;
      least = std::min(least, value);
      most = std::max(most, value);
    }
    if (most <= 0) continue;
    line.append(" | ").append(kNames[timer]).append(" ");
    line += ms_text(sum / static_cast<double>(ranks));
    if (ranks > 1) line += " (" + ms_text(least) + ".." + ms_text(most) + ")";
  }
  return line;
}

void TimerReport::add(const StepRecord& record) {
  if (!on_) return;
  const StepTimers& timers = record.timers_ms;
  const std::array<double, kTimers> step{record.step_ms, timers.forward,   timers.backward,
                                         timers.comm,    timers.optimizer, timers.io,
                                         timers.data};
  for (std::size_t i = 0; i < kTimers; ++i) sums_ms_[i] += step[i];
  ++steps_;
}

std::string TimerReport::line() {
  if (!on_ || steps_ == 0) return {};
  for (double& sum : sums_ms_) sum /= static_cast<double>(steps_);
  const std::vector<double> all = comm_.all_gather_values(sums_ms_);
  std::string text = format_timers(all, steps_);
  sums_ms_ = {};
  steps_ = 0;
  return text;
}

}  // namespace sluice
