// The tokenizer's files in a checkpoint's directory. Functions of their arguments and of the files;
// thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {

// Names that a tokenizer's files may have in a checkpoint: Hugging Face's, of what a tokenizer
// reads and of what goes with it.
[[nodiscard]] bool is_tokenizer_file(std::string_view name);

// With its length and checksum. REQUIRES: is_tokenizer_file(name).
[[nodiscard]] TokenizerFile tokenizer_file(const std::string& name, std::string text);

// The text of one file. Throws CheckpointError where the bytes are not those that were saved.
[[nodiscard]] std::string read_tokenizer_file(FileSystem& files, const std::string& dir,
                                              const TokenizerFile& file);
// Sets the text of every file. Throws as read_tokenizer_file.
void read_tokenizer_files(FileSystem& files, const std::string& dir, TokenizerRecord& tokenizer);
// Each durable under its name when this returns. Throws Error where a text was not read.
void write_tokenizer_files(FileSystem& files, const std::string& dir,
                           const TokenizerRecord& tokenizer);

}  // namespace sluice
