#include "runtime/checkpoint/io/tokenizer_files.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "runtime/checkpoint/format/checkpoint_error.hpp"

namespace sluice {
namespace {

constexpr std::array<std::string_view, 10> kNames{"tokenizer.json",
                                                  "vocab.json",
                                                  "merges.txt",
                                                  "tokenizer.model",
                                                  "tokenizer_config.json",
                                                  "special_tokens_map.json",
                                                  "added_tokens.json",
                                                  "chat_template.jinja",
                                                  "chat_template.json",
                                                  "generation_config.json"};
constexpr std::int64_t kLargestFile = std::int64_t{512} << 20;

std::uint64_t hash_of(std::string_view text) { return xxh3(std::as_bytes(std::span(text))); }

}  // namespace

bool is_tokenizer_file(std::string_view name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

TokenizerFile tokenizer_file(const std::string& name, std::string text) {
  check(is_tokenizer_file(name), "a name of a tokenizer's file");
  TokenizerFile file{name, static_cast<std::int64_t>(text.size()), hash_of(text)};
  file.text = std::make_shared<const std::string>(std::move(text));
  return file;
}

std::string read_tokenizer_file(FileSystem& files, const std::string& dir,
                                const TokenizerFile& file) {
  const std::string path = join_path(dir, file.name);
  if (!files.stat(path)) throw CheckpointError("is missing", path);
  std::string text = read_text(files, path, kLargestFile);
  if (static_cast<std::int64_t>(text.size()) == file.bytes && hash_of(text) == file.hash) {
    return text;
  }
  throw CheckpointError("the tokenizer's file is not the one that was saved: its checksum is " +
                            hex64(hash_of(text)) + " instead of " + hex64(file.hash),
                        path);
}

void read_tokenizer_files(FileSystem& files, const std::string& dir, TokenizerRecord& tokenizer) {
  for (TokenizerFile& file : tokenizer.files) {
    file.text = std::make_shared<const std::string>(read_tokenizer_file(files, dir, file));
  }
}

void write_tokenizer_files(FileSystem& files, const std::string& dir,
                           const TokenizerRecord& tokenizer) {
  for (const TokenizerFile& file : tokenizer.files) {
    check(file.text != nullptr, "the text of a tokenizer's file that is saved");
    replace_durably(files, join_path(dir, file.name), *file.text);
  }
}

}  // namespace sluice
