// Options of an engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "offload/offload_options.hpp"
#include "parallel/parallel_options.hpp"
#include "runtime/engine/initial_weights.hpp"
#include "runtime/engine/step_plan.hpp"
#include "runtime/engine/tiers/tier_limits.hpp"
#include "runtime/model/model_options.hpp"
#include "runtime/model/model_part.hpp"
#include "runtime/program/op_watch.hpp"
#include "runtime/program/program.hpp"
#include "runtime/run/train_options.hpp"
#include "zero/optimizer_options.hpp"
#include "zero/zero_options.hpp"

namespace sluice {

// An engine that does not train holds only parameters: no master weights, moments or gradients,
// whatever `offload` says.
enum class EnginePurpose { kTrain, kEvaluate, kGenerate };

struct EngineOptions {
  EnginePurpose purpose = EnginePurpose::kTrain;
  std::int64_t generate_positions = 0;  // length of the longest generated sequence; 0: none
  ModelOptions model;                   // REQUIRES: vocab > 0
  ParallelOptions parallel;             // only the schedule is read: `part` has the sizes
  ModelPart part;                       // this rank's, for the maker of the model
  TrainOptions train;
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  ZeroOptions zero;
  RecomputeOptions recompute;
  LossScaleOptions loss_scale;  // fp16
  OffloadOptions offload;
  TierOptions tiers;
  int dp = 1;
  bool trace = false;              // timings include the ends of collectives and NVMe transfers
  bool device_times = false;       // on a GPU: times are the device's, not those of issue
  std::shared_ptr<OpWatch> watch;  // observes every operation; null: no observer
  InitialWeights initial_weights;
  // The constructor makes no first weights, because a checkpoint may replace all of them: the
  // caller restores them or calls Engine::make_first_weights(). An image on NVMe is restored at
  // once.
  bool later_weights = false;
  // Makes the error when the device's allocator runs out of memory in a step, from plan, program
  // and the allocator's message. Empty: a BudgetError with the message.
  std::function<BudgetError(const StepPlan&, const Program&, const std::string&)> out_of_memory;
};

}  // namespace sluice
