// From a model and a configuration to the shape of a step, before anything is allocated: what the
// run's programs are written from, and what a dry run prints.
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

// The model whose units a run, or a plan of it, is made of. Meshes and selective recomputation take
// explicit blocks, which GPUs do not run yet (`sluice train` refuses them there): a GPU's plan of
// those has the host's blocks.
[[nodiscard]] ModelOptions unit_options(const EngineOptions& options);

[[nodiscard]] std::int64_t micro_batches_of(const EngineOptions& options);

// Sets what of a plan follows from the options alone, whatever its units' memory: stage,
// micro-batches, recomputation, order, placement, and which groups are resident. For one who has
// profiled the units once and asks about other options that leave them as they are.
void apply_layout(StepPlan& plan, const EngineOptions& options);

// Of the model that `options` are of, whatever part of it a rank has.
[[nodiscard]] double model_flops_per_step(const EngineOptions& options, const ModelSpec& spec);
[[nodiscard]] std::int64_t whole_param_count(const ModelSpec& spec);

// Profiles the model's units, a rank's part of them, on the meta device. Throws ConfigError where
// options.offload.parameters would move none of them.
[[nodiscard]] StepPlan plan_step(const EngineOptions& options, const Model& model);

// What running a unit on the meta device finds, and what else it says of itself.
struct UnitProfile {
  UnitMemory memory;
  UnitMemory decoding;        // where a sequence is run in parts: options.generate_positions > 0
  UnitExchanges exchanges{};  // with tensor-parallel ranks
  bool backward_reads_params = true;
  bool kept_moves = false;
};
[[nodiscard]] UnitProfile profile_of(const EngineOptions& options, const Model& model,
                                     std::size_t unit, bool split_backward);
// The training program of a shape. Failpoint plan.stage.S: a message of pipeline stage S becomes
// another micro-batch's.
[[nodiscard]] Program planned_program(const StepShape& shape);
// Throws Error where the programs of a pipeline's stages, written from `shapes` in their order, do
// not fit together (pipeline_check.hpp): a fault of the writers. `train`: by stage; the programs of
// evaluation are written here.
void check_stages(std::span<const Program> train, std::span<const StepShape> shapes);
// Whether units of a part leave gradients of their weights for later.
[[nodiscard]] bool splits_backward(const EngineOptions& options, const ModelPart& part);
// From profiles by unit of the spec. They depend on a unit's kind, the slice of it that a rank has
// and on the options' micro-batch, dtype and ways of running; not on where in a pipeline it stands.
// Throws likewise.
[[nodiscard]] StepPlan plan_step(const EngineOptions& options, const ModelSpec& spec,
                                 const std::vector<UnitProfile>& profiles);

}  // namespace sluice
