// The model of a command that uses a checkpoint is the checkpoint's own. Functions of their
// arguments and of the files; thread-safe.
#pragma once

#include <functional>
#include <string_view>

#include "configs/reader.hpp"
#include "runtime/checkpoint/io/checkpoint_load.hpp"

namespace sluice {

// Whether the user wrote a key ("model.heads") in a file or with --set.
using Written = std::function<bool(std::string_view key)>;

// Sets config.run.model to the model as it was trained. Keys that the user wrote must agree; an
// existing folder in model.from counts as written, except for its sizes. The user may change
// dropout, init_std, explicit_units, and seq of a model with rotary positions. Throws ConfigError
// with a line for each key that differs, with both values. Returns false for a checkpoint without a
// configuration, which leaves the model to the user.
[[nodiscard]] bool take_model(LoadedConfig& config, const Written& written,
                              const Checkpoint& checkpoint);

}  // namespace sluice
