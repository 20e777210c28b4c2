// The tokenizer's files in a checkpoint's directory. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {

// True for the names that a tokenizer's files may have in a checkpoint: Hugging Face's names of
// tokenizer files and their companions.
[[nodiscard]] bool is_tokenizer_file(std::string_view name);

// Makes an entry with length and checksum. REQUIRES: is_tokenizer_file(name).
[[nodiscard]] TokenizerFile tokenizer_file(const std::string& name, std::string text);

// Reads one file. Throws CheckpointError if the bytes differ from the saved bytes.
[[nodiscard]] std::string read_tokenizer_file(FileSystem& files, const std::string& dir,
                                              const TokenizerFile& file);
// Reads every file and sets its text. Throws as read_tokenizer_file().
void read_tokenizer_files(FileSystem& files, const std::string& dir, TokenizerRecord& tokenizer);
// Writes every file durably. Throws Error if a text is null.
void write_tokenizer_files(FileSystem& files, const std::string& dir,
                           const TokenizerRecord& tokenizer);

}  // namespace sluice
