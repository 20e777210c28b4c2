// From a model and a configuration to the shape of a step, before anything is allocated: what the
// run's programs are written from, and what a dry run prints.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "offload/offload_options.hpp"
#include "runtime/engine/initial_weights.hpp"
#include "runtime/engine/tier_limits.hpp"
#include "runtime/engine/train_options.hpp"
#include "runtime/model/units.hpp"
#include "runtime/program/step_shape.hpp"
#include "zero/zero_options.hpp"

namespace sluice {

// What an engine is for. One that does not train holds parameters and nothing else: no master
// weights, moments and gradients, whatever `offload` says of them.
enum class EnginePurpose { kTrain, kEvaluate, kGenerate };

struct EngineOptions {
  EnginePurpose purpose = EnginePurpose::kTrain;
  std::int64_t generate_positions = 0;  // of the longest sequence that it generates; 0: none
  ModelOptions model;                   // vocab known
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
};

struct StepPlan {
  std::vector<GroupPlan> groups;
  StepShape shape;
  std::optional<StepShape> decoding;  // of a sequence run in parts (write_decode_step)
  double model_flops_per_step = 0;    // of all ranks: 3 x forward, whatever is recomputed
};

// "none", "full", "selective".
[[nodiscard]] std::string_view name_of(RecomputeMode mode);

[[nodiscard]] std::int64_t micro_batches_of(const EngineOptions& options);

// Sets what of a plan follows from the options alone, whatever its units' memory: stage,
// micro-batches, recomputation, order, placement, and which groups are resident. For one who has
// profiled the units once and asks about other options that leave them as they are.
void apply_layout(StepPlan& plan, const EngineOptions& options);

// Profiles the model's units on the meta device.
[[nodiscard]] StepPlan plan_step(const EngineOptions& options, const Model& model);

}  // namespace sluice
