// Computes the shape of a step from a model and a configuration, without allocation. The run's
// programs are written from the shape; a dry run prints the shape.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "runtime/engine/engine_settings.hpp"
#include "runtime/engine/step_plan.hpp"
#include "runtime/model/unit_profile.hpp"
#include "runtime/model/units.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

// "none", "full", "selective".
[[nodiscard]] std::string_view name_of(RecomputeMode mode);

[[nodiscard]] std::int64_t micro_batches_of(const EngineOptions& options);

// options.zero.reduce_every; kStep for a rank alone on a GPU, whose products add to the step's
// gradients themselves, if the gradients stay there or the order is by layer; kStep in layer order
// for gradients that leave the device rounded, because only complete gradients are rounded.
[[nodiscard]] ReduceEvery reduce_every_of(const EngineOptions& options);
// A unit's gradients are added to those of earlier micro-batches.
[[nodiscard]] bool gradients_add(const EngineOptions& options);

// Sets the parts of a plan that follow from the options alone: stage, micro-batches, recomputation,
// order, placement, reductions, and resident groups. Serves callers that reuse profiled units with
// other options.
void apply_layout(StepPlan& plan, const EngineOptions& options);

// FLOP of the options' whole model, whichever part a rank has.
[[nodiscard]] double model_flops_per_step(const EngineOptions& options, const ModelSpec& spec);
[[nodiscard]] std::int64_t whole_param_count(const ModelSpec& spec);

// Profiles the units of a rank's part of the model on the meta device. Throws ConfigError if
// options.offload.parameters would move no parameters, or if the step has so many micro-batches
// that its program would fill the memory of a machine (2^24 operations).
[[nodiscard]] StepPlan plan_step(const EngineOptions& options, const Model& model);

// The results of a unit's run on the meta device, and the unit's properties.
struct UnitProfile {
  UnitMemory memory;
  UnitMemory decoding;        // for decode programs: if options.generate_positions > 0
  UnitExchanges exchanges{};  // with tensor-parallel ranks
  bool backward_reads_params = true;
  bool kept_moves = false;
};
[[nodiscard]] UnitProfile profile_of(const EngineOptions& options, const Model& model,
                                     std::size_t unit, bool split_backward);
// Throws Error if the programs of a pipeline's stages do not fit together (pipeline_check.hpp),
// which is a fault of the writers. `train` and `shapes`: by stage. Writes and checks the evaluation
// programs too.
void check_stages(std::span<const Program> train, std::span<const StepShape> shapes);
// True if units of the part leave gradients of weights for later.
[[nodiscard]] bool splits_backward(const EngineOptions& options, const ModelPart& part);
// plan_step() from profiles by unit of the spec. A profile depends on the unit's kind, the rank's
// slice, and the options' micro-batch, dtype and modes, but not on the pipeline stage. Throws as
// plan_step() above.
[[nodiscard]] StepPlan plan_step(const EngineOptions& options, const ModelSpec& spec,
                                 const std::vector<UnitProfile>& profiles);

}  // namespace sluice
