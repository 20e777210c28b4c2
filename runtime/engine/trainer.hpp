// The training loop of one rank: steps, evaluations, log, metrics, the sample at the end.
#pragma once

#include "parallel/comm/communicator.hpp"
#include "runtime/data/training_data.hpp"
#include "runtime/engine/plan_text.hpp"
#include "runtime/engine/step_profile.hpp"
#include "runtime/launch/watchdog.hpp"

namespace sluice {

struct TrainerOptions {
  EngineOptions engine;
  std::string output_dir;
  bool trace = false;
  bool on_gpu = false;
  int local_rank = 0;  // which GPU
  TierBudgets budgets;
};

// Runs to the last step, or to the end of the step in which a rank was asked to stop
// (runtime/launch/stop_signal.hpp). Collective. Returns the process's exit code: 0, or 130 where it
// was stopped. Throws TrainingError where loss or gradient become non-finite: the message names
// step, rank and unit.
[[nodiscard]] int run_trainer(const TrainerOptions& options, Communicator& comm,
                              const TrainingData& data, Watchdog& watchdog);

}  // namespace sluice
