// The reports of a run: log, progress line, metrics, TensorBoard events, and the trace of the last
// step. Every rank has a RunReport and makes the same calls. Only rank 0 writes, but every rank
// writes snapshots of its memory. Borrows options, engine, plan and communicator, which outlive the
// RunReport. Only compare_ranks() is collective.
// Not thread-safe: used by the thread that runs the steps.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "runtime/engine/exchange_timing.hpp"
#include "runtime/observe/event_file.hpp"
#include "runtime/observe/metrics_writer.hpp"
#include "runtime/observe/mlflow_writer.hpp"
#include "runtime/observe/progress.hpp"
#include "runtime/observe/run_events.hpp"
#include "runtime/program/executor.hpp"
#include "runtime/run/memory/memory_snapshots.hpp"
#include "runtime/run/plan_watch.hpp"
#include "runtime/run/report/run_summary.hpp"
#include "runtime/run/report/timer_report.hpp"

namespace sluice {

class Engine;
struct TrainerOptions;

class RunReport {
 public:
  // `gemm_rate`: FLOP/s that this rank measured. `comm`: of all ranks.
  RunReport(const TrainerOptions& options, const Engine& engine, const MemoryPlan& memory,
            Communicator& comm, double gemm_rate);

  // The model, and the planned peak of each tier, for the log at the start.
  void describe_run() const;
  // Called before `first`, the run's first step. Throws IoError.
  void open(std::int64_t first);

  void say(const std::string& line) const;
  // `kind` of the event (observe/README.md). Ignores an empty line.
  void warn(const std::string& line, const char* kind = "warning");
  // Called before a step.
  void step_begins(std::int64_t step) const;
  // Removes the progress line from the terminal.
  void clear_progress() { progress_.clear(); }

  // Keeps timings for the trace and for a snapshot of memory. Called after a training step, before
  // the engine runs a program.
  void keep_timings(std::int64_t step);
  // Called after every step, before step_done(). Collective in the third step, where ranks compare
  // their peaks with their plans, and with output.timers in the steps that print the timers.
  void compare_ranks(const StepRecord& record, const CountedTiers& counted);
  // Called after an evaluation; the record has the values.
  void evaluated(const StepRecord& record, double seconds);
  // Called after a step with the complete record, except plan_error, which step_done() sets.
  void step_done(StepRecord& record, const CountedTiers& counted);
  // Called after the last step if output.trace is set. Throws IoError.
  void write_trace();
  // Runs the run's last save, and counts its time.
  [[nodiscard]] bool count_save(const std::function<bool()>& save);
  // The summary, then `next`: commands to go on with. Called once, at the end; `checkpoint`: the
  // newest that was saved.
  void summarize(const std::string& checkpoint, const std::string& next);
  // Called when the run ends in order, before the RunReport is destroyed. Without the call the run
  // has failed.
  void ended(const std::string& reason, std::int64_t step, MlflowStatus status);

 private:
  void compare_peaks(const StepRecord& record, const CountedTiers& counted);
  void write_snapshot(const StepRecord& record);
  void note(RunEvent event) const;
  // At the third step: the plan's lanes as a file, and the differences beyond tolerance.
  void note_plan(const StepRecord& record);

  const TrainerOptions& options_;
  const Engine& engine_;
  const MemoryPlan& memory_;
  Communicator& comm_;
  PlanWatch watch_;
  StatusLine no_status_;  // for a run without a terminal
  ProgressPrinter progress_;
  EtaEstimator eta_;
  LossTrendMeter trend_;
  TimerReport timers_;
  std::string timers_line_;            // of the last step
  int steps_ = 0;                      // of this process
  OtherPeaks other_peaks_;             // at the third step, on all ranks
  std::optional<RunSummary> summary_;  // on rank 0, after open()
  MemorySnapshots snapshots_;
  std::vector<OpTiming> snapshot_timings_;  // of a step whose memory is written; else empty
  std::vector<OpTiming> traced_;            // timings of the last step
  std::vector<ExchangeTiming> traced_exchanges_;
  std::optional<MetricsWriter> metrics_;  // on rank 0, after open()
  std::optional<EventFile> events_;
  std::optional<MlflowWriter> mlflow_;
};

}  // namespace sluice
