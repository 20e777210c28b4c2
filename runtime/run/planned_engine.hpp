// An engine with the plan of its step.
#pragma once

#include "runtime/engine/engine.hpp"

namespace sluice {

// Plans the step (plan_step) and makes the engine. If the device runs out of memory, the error
// names the plan's largest tags and what to change. Collective; throws as plan_step and Engine do.
[[nodiscard]] Engine planned_engine(EngineOptions options, Model model, MeshRef comms,
                                    at::Device device, RowSource train, RowSource valid,
                                    PhaseObserver observer = {});
// The same with a given plan: plan_step of these options and this model, or of its dry model.
[[nodiscard]] Engine planned_engine(EngineOptions options, Model model, StepPlan plan,
                                    MeshRef comms, at::Device device, RowSource train,
                                    RowSource valid, PhaseObserver observer = {});

}  // namespace sluice
