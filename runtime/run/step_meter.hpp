// Measures the steps of one rank: time, rates, and memory peaks. Every rank has a StepMeter.
// Borrows the options, which outlive the StepMeter. No call is collective. Not thread-safe: used by
// the thread that runs the steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>

#include "runtime/engine/ops/step_result.hpp"
#include "runtime/observe/step_record.hpp"
#include "runtime/run/peak_rate.hpp"
#include "runtime/run/plan_watch.hpp"

namespace sluice {

class Engine;
struct EngineOptions;
struct TrainerOptions;

// Samples of a step, over all data-parallel ranks.
[[nodiscard]] std::int64_t global_batch_of(const EngineOptions& options);

class StepMeter {
 public:
  // REQUIRES: the rank's engine is made later. Host bytes counted until now are not the engine's.
  // `gemm_rate`: FLOP/s that this rank measured. `ranks`: ranks of the run.
  StepMeter(const TrainerOptions& options, at::Device device, double gemm_rate, int ranks);

  // Starts the clock of a step and resets the peaks.
  void begin_step(const Engine& engine);
  // Values of the completed step, except `tokens`, `skipped`, `checkpoint_ms` and values of an
  // evaluation.
  [[nodiscard]] StepRecord record(const Engine& engine, const StepInput& input,
                                  const StepResult& result);
  // The measured figures of the step that began last.
  [[nodiscard]] CountedTiers counted(const Engine& engine) const;

 private:
  using Clock = std::chrono::steady_clock;

  const TrainerOptions& options_;
  const at::Device device_;
  const int ranks_;
  const std::int64_t baseline_;  // counted host bytes that are not the engine's
  PeakRate peak_rate_;
  bool whole_step_ = true;  // Engine::next_step_is_whole, before the step
  Clock::time_point began_;
};

}  // namespace sluice
