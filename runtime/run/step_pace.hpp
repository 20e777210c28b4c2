// How fast this rank goes beside the others: what each computes and what it waits in collectives,
// exchanged every few steps, so that a rank that holds the others up is named (straggler.hpp). Not
// thread-safe: the thread that runs the steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "parallel/comm/communicator.hpp"
#include "runtime/launch/straggler.hpp"

namespace sluice {

class StepPace {
 public:
  // Every `log_every` steps, at least ten, the ranks compare. Nothing is exchanged by one rank.
  StepPace(Communicator& comm, std::int64_t log_every);

  // As PhaseObserver (engine.hpp): the rank begins to wait for others, or goes on.
  void on_phase(bool waiting);
  void begin_step();
  // Collective in the steps in which the ranks compare. What to say of the rank that is slow, the
  // same on all ranks; mostly nothing.
  [[nodiscard]] std::string end_step(std::int64_t step);

 private:
  using Clock = std::chrono::steady_clock;

  void stop_waiting(Clock::time_point now);

  Communicator& comm_;
  const std::int64_t every_;
  std::optional<StragglerWatch> watch_;  // made at the first comparison
  Clock::time_point step_began_;
  std::optional<Clock::time_point> waiting_since_;
  bool in_step_ = false;
  double step_waited_ms_ = 0;
  // Sums since the last comparison.
  double busy_ms_ = 0;
  double waited_ms_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace sluice
