// An engine with the plan of its step.
#pragma once

#include "runtime/engine/engine.hpp"

namespace sluice {

// Plans the step (plan_step) and makes the engine. An engine whose device runs out of memory names
// the plan's largest holders and what to change. Collective; throws as plan_step and Engine do.
[[nodiscard]] Engine planned_engine(EngineOptions options, Model model, MeshRef comms,
                                    at::Device device, RowSource train, RowSource valid,
                                    PhaseObserver observer = {});
// The same with a plan that exists: plan_step of these options and this model, or of its dry model.
[[nodiscard]] Engine planned_engine(EngineOptions options, Model model, StepPlan plan,
                                    MeshRef comms, at::Device device, RowSource train,
                                    RowSource valid, PhaseObserver observer = {});

}  // namespace sluice
