// Makes the plans of a model's configurations. Profiling units is the slow part: each kind of unit
// is profiled once for each thing that its memory depends on; the stages of a pipeline are put
// together from these. Not thread-safe (unit_profile.hpp).
#pragma once

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/plan/machine_profile.hpp"
#include "runtime/plan/planned_run.hpp"
#include "runtime/plan/step_profile.hpp"

namespace sluice {

struct PlanQuestion {
  EngineOptions options;  // `parallel` has the mesh; `part` is not looked at
  TierBudgets budgets;    // device 0: that of a GPU that is known
};

// Ranks of the mesh that the options are for.
[[nodiscard]] int world_of(const EngineOptions& options);

class Planner {
 public:
  // REQUIRES: all questions are about one model (its recompute_attention aside).
  explicit Planner(MachineProfile machine) : machine_(std::move(machine)) {}

  // All stages of the pipeline.
  [[nodiscard]] RunPlan plan(const PlanQuestion& question);
  // Cheap: no program is written. The plan's shape, of which bounds can be had; of the rank that
  // options.part is of.
  [[nodiscard]] StepPlan shape_of(const EngineOptions& options);
  // The same where micro-batches of more than two samples are drawn out from those of one and two:
  // what a unit needs is the highest of figures that grow evenly with samples, so this is no more
  // than it. For bounds: profiling large micro-batches is slow.
  [[nodiscard]] StepPlan lower_shape_of(const EngineOptions& options);
  // The same options for the first tensor-parallel rank of a stage.
  [[nodiscard]] EngineOptions at_stage(const EngineOptions& options, int stage);

  [[nodiscard]] const MachineProfile& machine() const { return machine_; }
  // Of a rank that has options.part of the model.
  [[nodiscard]] Rates rates(const EngineOptions& options);
  // By tier; with the device's own memory where that is known and no budget was given.
  [[nodiscard]] std::array<std::int64_t, static_cast<std::size_t>(kTierCount)> budgets_of(
      const PlanQuestion& question) const;

 private:
  using PartKey = std::tuple<bool, bool, ModelPart>;  // with recompute_attention, and on_gpu
  using ProfileKey = std::tuple<PartKey, std::int64_t, int, bool, bool, std::int64_t>;
  using CutKey = std::tuple<int, int, std::vector<int>>;  // stages, virtual stages, stage_layers
  // Units of one kind with the same frozen parameters have one profile.
  using Kinds = std::map<std::pair<UnitKind, std::vector<bool>>, UnitProfile>;

  [[nodiscard]] const Kinds& profiles(const EngineOptions& options);
  [[nodiscard]] Kinds drawn_profiles(const EngineOptions& options);
  [[nodiscard]] const ModelSpec& spec_of(const ModelOptions& model, const ModelPart& part);
  [[nodiscard]] const MeshWires& wires(const EngineOptions& options);
  [[nodiscard]] StagePlan plan_stage(const PlanQuestion& question, const EngineOptions& options);

  MachineProfile machine_;
  std::map<PartKey, Model> models_;  // of all units
  std::map<ProfileKey, Kinds> profiles_;
  std::map<PartKey, ModelSpec> specs_;
  std::map<CutKey, std::vector<ModelPart>> parts_;              // by stage
  std::map<std::tuple<int, int, int, bool>, MeshWires> wires_;  // tensor, stages, world, around
};

// Tokens of a step, of all ranks, from which a lane's work hides behind compute, by accumulating
// more micro-batches: what a step costs the lane once is spread over more of them. 0: hidden
// already, or idle; infinity: its work grows with the micro-batches as fast as compute's.
[[nodiscard]] LaneSeconds hiding_tokens(const StepShape& shape, const Rates& rates,
                                        std::int64_t tokens_of_micro_batch);

}  // namespace sluice
