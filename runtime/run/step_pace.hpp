// Finds a slow rank. Every few steps the ranks exchange their compute time and their wait in
// collectives, and the slow rank is named (straggler.hpp). Not thread-safe: used by the thread that
// runs the steps.
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
  // The ranks compare every `log_every` steps, at least ten. A single rank exchanges nothing.
  StepPace(Communicator& comm, std::int64_t log_every);

  // As PhaseObserver (engine.hpp): the rank begins or stops waiting for other ranks.
  void on_phase(bool waiting);
  void begin_step();
  // Collective in steps with a comparison. Returns a line about the slow rank, equal on all ranks;
  // mostly empty.
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
