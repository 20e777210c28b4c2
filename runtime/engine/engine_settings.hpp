// What an engine is made with.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "offload/offload_options.hpp"
#include "parallel/parallel_options.hpp"
#include "runtime/engine/initial_weights.hpp"
#include "runtime/engine/step_plan.hpp"
#include "runtime/engine/tier_limits.hpp"
#include "runtime/model/model_options.hpp"
#include "runtime/model/model_part.hpp"
#include "runtime/program/program.hpp"
#include "runtime/run/train_options.hpp"
#include "zero/optimizer_options.hpp"
#include "zero/zero_options.hpp"

namespace sluice {

// What an engine is for. One that does not train holds parameters and nothing else: no master
// weights, moments and gradients, whatever `offload` says of them.
enum class EnginePurpose { kTrain, kEvaluate, kGenerate };

struct EngineOptions {
  EnginePurpose purpose = EnginePurpose::kTrain;
  std::int64_t generate_positions = 0;  // of the longest sequence that it generates; 0: none
  ModelOptions model;                   // vocab known
  ParallelOptions parallel;             // of its keys the schedule alone: sizes are the part's
  ModelPart part;                       // this rank's; who makes the model asks for it
  TrainOptions train;
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  ZeroOptions zero;
  RecomputeOptions recompute;
  LossScaleOptions loss_scale;  // fp16
  OffloadOptions offload;
  TierOptions tiers;
  int dp = 1;
  bool trace = false;  // timings know when what is on the wire and at the disk is over
  InitialWeights initial_weights;
  // Makes the error of a step in which the device's allocator ran out of memory, from the plan, the
  // program and the allocator's message. Empty: a BudgetError with that message.
  std::function<BudgetError(const StepPlan&, const Program&, const std::string&)> out_of_memory;
};

}  // namespace sluice
