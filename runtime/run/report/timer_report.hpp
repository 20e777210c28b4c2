// The timers of the steps as a line of the log (output.timers):
//
//    timers of 10 steps, ms: step 412 | forward 120 (118..131) | backward 210 (205..214) | ...
//
// Means over the steps since the last line. With several ranks: the mean over the ranks, and the
// fastest and slowest rank; step is rank 0's. Timers overlap (StepTimers). Timers that are 0 on
// every rank are left out. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "parallel/comm/communicator.hpp"
#include "runtime/observe/step_record.hpp"

namespace sluice {

class TimerReport {
 public:
  static constexpr std::size_t kTimers = 7;  // the step, and those of StepTimers

  // `comm`: of all ranks. `on`: false: nothing is measured or exchanged.
  TimerReport(Communicator& comm, bool on) : comm_(comm), on_(on) {}

  void add(const StepRecord& record);
  // The line of the steps since the last call; "" if there are none, or if the report is off.
  // Collective if the report is on: one exchange.
  [[nodiscard]] std::string line();

 private:
  Communicator& comm_;
  const bool on_;
  std::array<double, kTimers> sums_ms_{};
  std::int64_t steps_ = 0;
};

// `means_ms`: kTimers values of each rank, in rank order. Pure.
[[nodiscard]] std::string format_timers(std::span<const double> means_ms, std::int64_t steps);

}  // namespace sluice
