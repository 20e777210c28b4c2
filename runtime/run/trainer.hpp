// The training loop of one rank: steps, evaluations, log, metrics, the sample at the end.
#pragma once

#include <optional>
#include <string>

#include "parallel/mesh_comms.hpp"
#include "runtime/data/training_data.hpp"
#include "runtime/launch/watchdog.hpp"
#include "runtime/plan/step_profile.hpp"
#include "runtime/run/plan_watch.hpp"
#include "runtime/run/run_saver.hpp"

namespace sluice {

struct TrainerOptions {
  EngineOptions engine;
  std::string output_dir;
  bool trace = false;
  bool tensorboard = false;  // event files in output_dir/tensorboard
  bool on_gpu = false;
  int local_rank = 0;  // which GPU
  // FLOP/s of the card's dense products, by its data sheet; 0: a CPU, or a card that is not known.
  double card_flops = 0;
  // Ranks that are threads of this process (launch.backend: local). Memory is counted by process:
  // with more than one, device_peak and resident_peak are of all of them, and device_peak is not
  // held against the plan.
  int ranks_of_process = 1;
  TierBudgets budgets;
  SavingOptions saving;
  std::string next_commands;      // lines to print at the end of a run that was saved
  std::optional<RunRates> rates;  // none: the step's time is not predicted
};

// Runs to the last step, or to the end of the step in which a rank was asked to stop
// (runtime/launch/stop_signal.hpp). Collective. Returns the process's exit code: 0, or 130 where it
// was stopped. Throws TrainingError where loss or gradient become non-finite: the message names
// step, rank and unit.
[[nodiscard]] int run_trainer(const TrainerOptions& options, MeshComms& comms,
                              const TrainingData& data, Watchdog& watchdog);

}  // namespace sluice
