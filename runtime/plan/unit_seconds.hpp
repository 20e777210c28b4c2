// Time of a model's units on a machine with measured units (sluice doctor), or on a GPU of which
// the rate of attention is known. Pure.
#pragma once

#include <vector>

#include "runtime/plan/machine_profile.hpp"
#include "runtime/plan/step_profile.hpp"

namespace sluice {

// Seconds of one micro-batch by unit of the spec, which is a rank's part of the options' model.
// Empty if the machine's units were not measured, and for a GPU without a rate of attention, in
// fp32, and where attention runs by batched products, unless products have 8 bits. Rates between
// two measured sizes are interpolated.
[[nodiscard]] std::vector<UnitSeconds> unit_seconds(const MachineProfile& machine,
                                                    const EngineOptions& options,
                                                    const ModelSpec& spec);

// Lower bound of compute seconds for one micro-batch of this shape.
[[nodiscard]] double compute_floor(const StepShape& shape, const Rates& rates);

// The part of compute_floor() before the loss head: the forwards of all other units.
[[nodiscard]] double forward_floor(const StepShape& shape, const Rates& rates);

}  // namespace sluice
