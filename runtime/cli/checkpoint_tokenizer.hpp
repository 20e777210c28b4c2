// The tokenizer of a command that uses a checkpoint: the checkpoint's own. Functions of their
// arguments and of the files; thread-safe.
#pragma once

#include <string>

#include "configs/reader.hpp"
#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "runtime/cli/checkpoint_model.hpp"

namespace sluice {

// What data.tokenizer is of the tokenizer in a checkpoint; empty: the checkpoint has none.
[[nodiscard]] std::string own_tokenizer(const Checkpoint& checkpoint);

// Sets data.tokenizer to the checkpoint's own, every file compared with its checksum. One that the
// user wrote, or the folder in model.from has, must be the same. Returns what is to be said of it,
// mostly nothing. Throws ConfigError with both fingerprints, CheckpointError, IoError. REQUIRES:
// the checkpoint has one.
[[nodiscard]] std::string take_tokenizer(LoadedConfig& config, const Written& written,
                                         const Checkpoint& checkpoint);
// The same of a tokenizer that an option or a key names. `place`: where.
void check_is_own_tokenizer(const Checkpoint& checkpoint, const std::string& spec,
                            const std::string& place);

}  // namespace sluice
