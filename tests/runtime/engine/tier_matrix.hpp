// Placements that have a meaning, run after run against the one that has everything on the device.
#pragma once

#include <functional>
#include <string>

#include "tests/runtime/engine/world.hpp"

namespace sluice::testing {

inline constexpr int kTierSteps = 5;

[[nodiscard]] std::string name_of_tier(Tier tier);

// A model of four blocks, two ranks, chunks of 16 KiB.
[[nodiscard]] EngineOptions tier_options(DType dtype, int accumulation);

struct Placed {
  Tier optimizer = Tier::kDevice;
  Tier parameters = Tier::kDevice;
  Tier gradients = Tier::kDevice;
  Tier activations = Tier::kDevice;
};

void place(EngineOptions& options, const Placed& p);

// Only biases are trained. They begin at 0, so one step of SGD with learning rate 1 makes them the
// negative gradients.
void train_biases_alone(EngineOptions& options);

[[nodiscard]] std::string describe(const Placed& p, const EngineOptions& options);

// Every placement that has a meaning; `every`: one of so many of them runs. `adapt` is done to the
// options of what is compared with the oracle.
void run_matrix(int every, const std::function<void(EngineOptions&)>& adapt = {});

// Steps with everything between them that looks at parameters, sets them, or throws a step away.
[[nodiscard]] WorldResult train_with_interruptions(const EngineOptions& options);

}  // namespace sluice::testing
