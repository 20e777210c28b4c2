// What a run reports: log, progress line, metrics, TensorBoard events, and the trace of its last
// step. Every rank has one and makes the same calls; rank 0's writes, the others' do nothing.
// Borrows options, engine, plan and communicator, which outlive it. No call is collective. Not
// thread-safe: the thread that runs the steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "runtime/engine/exchange_timing.hpp"
#include "runtime/observe/event_file.hpp"
#include "runtime/observe/metrics_writer.hpp"
#include "runtime/observe/progress.hpp"
#include "runtime/program/executor.hpp"
#include "runtime/run/plan_watch.hpp"

namespace sluice {

class Engine;
struct TrainerOptions;

class RunReport {
 public:
  // `gemm_rate`: FLOP/s that this rank measured. `comm`: of all ranks.
  RunReport(const TrainerOptions& options, const Engine& engine, const MemoryPlan& memory,
            const Communicator& comm, double gemm_rate);

  // The model, and the planned peak of each tier, for the log at the start.
  void describe_run() const;
  // Before step `first`, the first one. Throws IoError.
  void open(std::int64_t first);

  void say(const std::string& line) const;
  // An empty line is none.
  void warn(const std::string& line);
  // Removes a progress line that would be rewritten.
  void clear_progress() { progress_.clear(); }

  // After a training step, before the engine runs another program: what the trace shows.
  void keep_timings();
  // After an evaluation, whose values the record has.
  void evaluated(const StepRecord& record, double seconds);
  // The record of a step is complete but for plan_error, which is set here.
  void step_done(StepRecord& record, const CountedTiers& counted);
  // After the last step, with output.trace. Throws IoError.
  void write_trace();

 private:
  const TrainerOptions& options_;
  const Engine& engine_;
  const MemoryPlan& memory_;
  const Communicator& comm_;
  PlanWatch watch_;
  ProgressPrinter progress_;
  EtaEstimator eta_;
  std::vector<OpTiming> traced_;  // of the last step
  std::vector<ExchangeTiming> traced_exchanges_;
  std::optional<MetricsWriter> metrics_;  // rank 0, once the records are open
  std::optional<EventFile> events_;
};

}  // namespace sluice
