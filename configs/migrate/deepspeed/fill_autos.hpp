// Values for "auto", as Hugging Face's Trainer fills them: from settings of Sluice's keys and from
// the model's width. Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "configs/migrate/deepspeed/deepspeed_migration.hpp"

namespace sluice::migrate {

// The options with all values of "auto" that can be known. Settings win over training arguments.
[[nodiscard]] ParseOptions fill_autos(const HjsonNode& root, const DeepSpeedOptions& options);

// The flags that give the value of a key: "--set optimizer.lr=LR, or learning_rate with --trainer".
[[nodiscard]] std::string flags_for(std::string_view path);

}  // namespace sluice::migrate
