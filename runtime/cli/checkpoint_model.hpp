// The model of a command that uses a checkpoint: the checkpoint's own. Functions of their arguments
// and of the files; thread-safe.
#pragma once

#include <functional>
#include <string_view>

#include "configs/reader.hpp"
#include "runtime/checkpoint/io/checkpoint_load.hpp"

namespace sluice {

// Whether the user wrote a key ("model.heads"), in a file or with --set.
using Written = std::function<bool(std::string_view key)>;

// Makes config.run.model the model that the checkpoint was trained as. Keys that the user wrote
// hold only where they say the same; a folder in model.from that is there counts as written, its
// sizes apart. Keys of the user's own: dropout, init_std, explicit_units, and seq of a model with
// rotary positions. Throws ConfigError with a line for each key that differs, with both values.
// A checkpoint without a configuration leaves the model to the user: returns false.
[[nodiscard]] bool take_model(LoadedConfig& config, const Written& written,
                              const Checkpoint& checkpoint);

}  // namespace sluice
