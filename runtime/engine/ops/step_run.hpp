// State of the program that runs, or ran last: its purpose (mode, step, batch size) and its results
// so far. Written on the executing thread; lanes read `program` and `mode`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/index.hpp"
#include "runtime/engine/engine_setup.hpp"
#include "runtime/engine/exchange_timing.hpp"
#include "runtime/engine/ops/step_result.hpp"
#include "runtime/engine/update_step.hpp"
#include "runtime/program/executor.hpp"

namespace sluice {

enum class RunMode {
  kTrain,
  kEvaluate,  // mean loss over validation batches
  kLosses,    // sums of the caller's micro-batches
  kLogits,
  kDecode,    // positions of one sequence, with caches
  kDiagnose,  // a training step without its update, to find a non-finite value
  kUpdate     // the deferred update alone
};

struct StepRun {
  const Program* program = nullptr;
  RunMode mode = RunMode::kTrain;
  // The step; kEvaluate, kLosses: number of the micro-batch; kDecode: the first position.
  std::int64_t index = 0;
  BatchSize size;   // of a micro-batch
  StepInput input;  // of the last training step
  OpId entered = -1;
  double loss_sum = 0;  // over the micro-batches of one call of the engine
  // Of the global batch whose rows were read last (SampleRows::learned_targets); 0 on a rank that
  // has read no rows in this program.
  double learned_targets = 0;
  double data_ms = 0;
  double clip_coefficient = 1;
  std::uint64_t rounding_seed = 0;  // of all steps
  StepResult result;
  std::vector<OpTiming> timings;
  std::vector<ExchangeTiming> exchanges;

  void begin_step(const StepInput& of_step);
  void begin_program(const Program& next, RunMode of_mode, std::int64_t at, BatchSize of_batch);

  [[nodiscard]] bool training() const {
    return mode == RunMode::kTrain || mode == RunMode::kDiagnose;
  }
  // The number by which a global batch's sum of losses is divided; `tokens`: of its rows.
  [[nodiscard]] double loss_divisor(double tokens) const {
    return learned_targets > 0 ? learned_targets : tokens;
  }
  // The factor of the gradients of a micro-batch's sum of losses.
  [[nodiscard]] double loss_factor(double tokens) const {
    return input.loss_scale / loss_divisor(tokens);
  }
  // Whether the step was clipped or thrown away.
  [[nodiscard]] bool clipped() const { return !result.finite() || clip_coefficient != 1.0; }
  // The step's update, of gradients scaled by `clip`.
  [[nodiscard]] UpdateArgs update(double clip) const {
    return {.step = input.update,
            .lr = input.lr,
            .grad_scale = clip / input.loss_scale,
            .rounding_seed = rounding_seed};
  }
  [[nodiscard]] std::size_t index_of(const Op& op) const {
    return static_cast<std::size_t>(&op - program->ops.data());
  }
  [[nodiscard]] const Buffer& buffer(BufferId id) const { return nth(program->buffers, id); }
  [[nodiscard]] const std::vector<BucketPiece>& pieces(const Op& op) const {
    return nth(program->buckets, op.bucket);
  }
  // The sums over the program's operations by kind. Without `io`.
  [[nodiscard]] StepTimes times(const std::vector<OpTiming>& of_operations) const;
};

}  // namespace sluice
