// The tokenizer of a command that uses a checkpoint is the checkpoint's own. Functions of their
// arguments and of the files; thread-safe.
#pragma once

#include <string>

#include "configs/reader.hpp"
#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "runtime/cli/checkpoint_model.hpp"

namespace sluice {

// The value of data.tokenizer for the checkpoint's tokenizer; empty if the checkpoint has none.
[[nodiscard]] std::string own_tokenizer(const Checkpoint& checkpoint);

// The path of the chat template that the checkpoint holds as a file of its own; empty if none.
[[nodiscard]] std::string own_chat_template(const Checkpoint& checkpoint);

// Sets data.tokenizer to the checkpoint's own, data.chat_template too unless the user wrote it, and
// compares every file with its checksum. A tokenizer that the user wrote, or that the folder in
// model.from has, must be the same. Returns a note, mostly empty. Throws ConfigError with both
// fingerprints, CheckpointError, IoError. REQUIRES: the checkpoint has a tokenizer.
[[nodiscard]] std::string take_tokenizer(LoadedConfig& config, const Written& written,
                                         const Checkpoint& checkpoint);
// The same for a tokenizer that an option or a key names; `place` names the option or key.
void check_is_own_tokenizer(const Checkpoint& checkpoint, const std::string& spec,
                            const std::string& place);

}  // namespace sluice
