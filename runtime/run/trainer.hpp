// The training loop of one rank: steps, evaluations, log, metrics, the sample at the end.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "parallel/mesh_comms.hpp"
#include "runtime/data/training_data.hpp"
#include "runtime/launch/watchdog.hpp"
#include "runtime/observe/mlflow_store.hpp"
#include "runtime/plan/step_profile.hpp"
#include "runtime/run/plan_watch.hpp"
#include "runtime/run/run_saver.hpp"

namespace sluice {

class StatusLine;

struct TrainerOptions {
  EngineOptions engine;
  std::string output_dir;
  bool trace = false;
  bool tensorboard = false;      // event files in output_dir/tensorboard
  bool timers = false;           // the log has the timers of every log_every steps
  StatusLine* status = nullptr;  // of the terminal, shared with the log; nullptr: no terminal
  MlflowOptions mlflow;          // on rank 0
  std::vector<std::int64_t> memory_snapshot;  // steps whose memory is written
  bool on_gpu = false;
  int local_rank = 0;  // the GPU's index
  // FLOP/s of dense products from the GPU's data sheet; 0: a CPU or an unknown GPU.
  double card_flops = 0;
  // Ranks that are threads of this process (launch.backend: local). Memory is counted by process.
  // With several ranks, device_peak and resident_peak are of all of these ranks, and device_peak is
  // not compared with the plan.
  int ranks_of_process = 1;
  TierBudgets budgets;
  SavingOptions saving;
  int gpus_of_host = 0;                        // of this run on rank 0's host
  std::function<std::string()> next_commands;  // makes lines to print at the end of a saved run
  std::string resume_command;     // lines to print at the end of a stopped run; empty: not known
  std::optional<RunRates> rates;  // nullopt: the step time is not predicted
  RunEvents* events = nullptr;    // of rank 0; null: events.jsonl is not written
  // On rank 0: called after the last check that may refuse the run, before its files are opened.
  std::function<void()> on_accepted;
};

// Runs to the last step, or to the end of the step in which a rank was asked to stop
// (runtime/launch/stop_signal.hpp). Collective. Returns the process's exit code: 0, or 130 if the
// run was stopped before its last step. Throws TrainingError if the loss or the gradient norm is
// not finite, unless the loss scale skips the step; the message names step, rank and unit.
[[nodiscard]] int run_trainer(const TrainerOptions& options, MeshComms& comms,
                              const TrainingData& data, Watchdog& watchdog);

}  // namespace sluice
