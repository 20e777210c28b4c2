// What a model's units cost on a machine whose units were measured (sluice doctor). Pure.
#pragma once

#include <vector>

#include "runtime/plan/machine_profile.hpp"
#include "runtime/plan/step_profile.hpp"

namespace sluice {

// By unit of the spec, a rank's part of the options' model, of one micro-batch; empty where the
// machine's units were not measured. Rates of sizes between two that were measured are
// interpolated.
[[nodiscard]] std::vector<UnitSeconds> unit_seconds(const MachineProfile& machine,
                                                    const EngineOptions& options,
                                                    const ModelSpec& spec);

// What compute takes for one micro-batch of this shape, at least.
[[nodiscard]] double compute_floor(const StepShape& shape, const Rates& rates);

// What of it comes before the loss head: the forwards of all other units.
[[nodiscard]] double forward_floor(const StepShape& shape, const Rates& rates);

}  // namespace sluice
