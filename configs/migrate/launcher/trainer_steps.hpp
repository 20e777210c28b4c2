// Numbers of steps that follow from the Trainer's arguments. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "configs/migrate/launcher/training_arguments.hpp"

namespace sluice::migrate {

// max_steps, or the context's steps; 0: not known.
[[nodiscard]] std::int64_t trainer_steps(const TrainerValues& values,
                                         const TrainerContext& context);

// Steps of the warm-up; nullopt if a share of unknown steps.
[[nodiscard]] std::optional<std::int64_t> trainer_warmup(const TrainerValues& values,
                                                         std::int64_t steps);

// The warm-up as a share of unknown steps, "3%"; "" where trainer_warmup() knows the steps; as it
// is given where it is no share, so that the schema refuses it.
[[nodiscard]] std::string trainer_warmup_share(const TrainerValues& values, std::int64_t steps);

}  // namespace sluice::migrate
