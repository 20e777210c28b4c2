#include "runtime/run/planned_engine.hpp"

#include <utility>

#include "runtime/plan/plan_text.hpp"
#include "runtime/plan/step_profile.hpp"

namespace sluice {

Engine planned_engine(EngineOptions options, Model model, MeshRef comms, at::Device device,
                      RowSource train, RowSource valid, PhaseObserver observer) {
  StepPlan plan = plan_step(options, model);
  return planned_engine(std::move(options), std::move(model), std::move(plan), std::move(comms),
                        device, std::move(train), std::move(valid), std::move(observer));
}

Engine planned_engine(EngineOptions options, Model model, StepPlan plan, MeshRef comms,
                      at::Device device, RowSource train, RowSource valid, PhaseObserver observer) {
  options.out_of_memory = [](const StepPlan& step, const Program& program,
                             const std::string& message) {
    return out_of_device_memory(step, plan_memory(program, {}), message);
  };
  return Engine(std::move(options), std::move(model), std::move(plan), std::move(comms), device,
                std::move(train), std::move(valid), std::move(observer));
}

}  // namespace sluice
