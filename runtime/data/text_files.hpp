// Which files `data.text` means. document_reader.hpp reads them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// By the name: what lies in the file if it is text.
enum class TextFormat {
  kPlain,
  kJsonLines,  // .jsonl, .ndjson
  kJson,       // .json: lines or one JSON document
};

struct TextFile {
  std::string path;  // absolute, without links
  std::int64_t size_bytes = 0;
  std::int64_t modified_ns = 0;
  bool named = false;  // given by name, so that being empty or binary is worth an error
  TextFormat format = TextFormat::kPlain;  // of the name, without an ending .gz
};

// Each spec is a file, a folder (all text files below it, known by their extension) or a glob: `*`,
// `?` and `[a-z]`, `[!a-z]` within a name, `**` for any number of folders, `\` before a character
// taken as it is; a glob means files, of any extension. Names that begin with a dot are left out
// unless the pattern has the dot; links to folders below a folder or a wildcard are not followed.
// Relative paths start at the working directory. Sorted by path, each file once. Throws IoError
// where a spec matches no file or a folder cannot be read.
[[nodiscard]] std::vector<TextFile> find_text_files(const std::vector<std::string>& specs);

// One component of a path against one component of a pattern. `?` and classes take a UTF-8
// character.
[[nodiscard]] bool matches_glob(std::string_view name, std::string_view pattern);

}  // namespace sluice
