// A run's tokenizer as its checkpoints keep it. Functions of their arguments and of the files;
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {

class FileSystem;

// `spec`: what `tokenizer` was made of. Its files are read again, and what Hugging Face puts beside
// them with them. Throws IoError where they are no longer those of `tokenizer`.
[[nodiscard]] TokenizerRecord tokenizer_record(const Tokenizer& tokenizer, const std::string& spec,
                                               std::vector<std::int32_t> end_tokens);

// Completes `now`, the record of a run that goes on, by what the checkpoint in `path` has of the
// same tokenizer or, where the run trains on tokens and has none, of its own. Throws
// CheckpointError.
void inherit_tokenizer(TokenizerRecord& now, const TokenizerRecord& saved, FileSystem& files,
                       const std::string& path);

}  // namespace sluice
