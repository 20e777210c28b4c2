// The tokenizer of a run in its checkpoints. Functions depend only on arguments and files.
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"

namespace sluice {

class FileSystem;

// `spec`: the source of `tokenizer`. Reads its files again, with the files that Hugging Face puts
// beside them. Throws IoError if the files are no longer those of `tokenizer`.
[[nodiscard]] TokenizerRecord tokenizer_record(const Tokenizer& tokenizer, const std::string& spec,
                                               std::vector<std::int32_t> end_tokens);

// Adds the chat template of a run on conversations as chat_template.jinja, unless `record` has it
// among the tokenizer's files. `chat_template`: data.chat_template. Throws as chat_template_of.
void add_chat_template(const Tokenizer& tokenizer, const std::string& spec,
                       const std::string& chat_template, TokenizerRecord& record);

// Replaces `now`, the record of a resumed run, by the record of the checkpoint in `path`, if both
// have the same tokenizer or the run has none. Throws CheckpointError.
void inherit_tokenizer(TokenizerRecord& now, const TokenizerRecord& saved, FileSystem& files,
                       const std::string& path);
// The same for the record of an image, which names the tokenizer's files and does not hold them. A
// file comes from `now`, or from the newest complete checkpoint of `dir`. Returns the error if a
// file is in neither: `now` then takes the end tokens of the same tokenizer and stays otherwise.
[[nodiscard]] std::string inherit_from_image(TokenizerRecord& now, const TokenizerRecord& saved,
                                             FileSystem& files, const std::string& dir);

}  // namespace sluice
