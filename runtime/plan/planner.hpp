// Makes the plans of a model's configurations. Profiling units is slow, so each kind of unit is
// profiled once for each set of options that its memory depends on. Pipeline stages are assembled
// from these profiles. Not thread-safe (unit_profile.hpp), except complete().
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
  EngineOptions options;  // `parallel` has the mesh; `part` is ignored
  TierBudgets budgets;    // device 0: the memory of a known GPU
};

// Number of ranks in the options' mesh.
[[nodiscard]] int world_of(const EngineOptions& options);

// A plan whose programs are still to be written.
struct OpenPlan {
  RunPlan plan{};              // with the shapes of all stages
  std::vector<Rates> rates{};  // by stage
  TierBudgets budgets{};       // the device's filled in
  bool gpu = false;
};

// Writes the programs of all stages, and all that follows from them. Pure; thread-safe.
[[nodiscard]] RunPlan complete(OpenPlan open);

class Planner {
 public:
  // REQUIRES: all questions are about one model, except recompute_attention.
  explicit Planner(MachineProfile machine) : machine_(std::move(machine)) {}

  // Plans all stages of the pipeline.
  [[nodiscard]] RunPlan plan(const PlanQuestion& question) { return complete(open(question)); }
  // The part of plan() that reads the profiles, and adds missing ones.
  [[nodiscard]] OpenPlan open(const PlanQuestion& question);
  // The plan's shape for the rank of options.part, enough for bounds. Cheap: writes no program.
  [[nodiscard]] StepPlan shape_of(const EngineOptions& options);
  // shape_of() with micro-batches above two samples extrapolated from one and two samples. A unit's
  // memory is the largest of figures linear in samples, so the extrapolation is a lower bound.
  // Faster than profiling large micro-batches.
  [[nodiscard]] StepPlan lower_shape_of(const EngineOptions& options);
  // The same options for the first tensor-parallel rank of a stage.
  [[nodiscard]] EngineOptions at_stage(const EngineOptions& options, int stage);

  [[nodiscard]] const MachineProfile& machine() const { return machine_; }
  // Rates of a rank that has options.part of the model.
  [[nodiscard]] Rates rates(const EngineOptions& options);
  // By tier. Without a device budget, the memory of a known device less the context's, at least 1.
  [[nodiscard]] TierBytes budgets_of(const PlanQuestion& question) const;

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
  [[nodiscard]] StagePlan open_stage(const EngineOptions& options);

  MachineProfile machine_;
  std::map<PartKey, Model> models_;  // with all units
  std::map<ProfileKey, Kinds> profiles_;
  std::map<PartKey, ModelSpec> specs_;
  std::map<CutKey, std::vector<ModelPart>> parts_;              // by stage
  std::map<std::tuple<int, int, int, bool>, MeshWires> wires_;  // tensor, stages, world, around
};

// Tokens per step of all ranks from which compute hides a lane's work. More micro-batches spread
// the lane's cost per step. 0: already hidden, or idle; infinity: the lane's work per micro-batch
// is not below compute's. `order`: of several micro-batches; the shape of one does not tell.
[[nodiscard]] LaneSeconds hiding_tokens(const StepShape& shape, const Rates& rates,
                                        std::int64_t tokens_of_micro_batch,
                                        AccumulationOrder order);

}  // namespace sluice
