// The files that `data.text`, or another key or argument, names. document_reader.hpp reads them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// Type of a text file by its name.
enum class TextFormat {
  kPlain,
  kJsonLines,  // .jsonl, .ndjson
  kJson,       // .json: lines or one JSON document
  kParquet,    // .parquet: read as JSON lines, one for each row
  kTable,      // .csv, .tsv: no text
};

// The files that a folder stands for, by extension. `.gz` or `.zst` may follow, but for Parquet.
enum class FolderFiles {
  kText,           // prose, source code, JSON lines, Parquet; the log counts the others
  kConversations,  // JSON lines, .json, Parquet
};

struct TextFile {
  std::string path;  // absolute, without links
  std::int64_t size_bytes = 0;
  std::int64_t modified_ns = 0;
  bool named = false;  // given by name, so that being empty or binary is worth an error
  // Of the name, without an ending .gz or .zst. A link has a name of its own.
  TextFormat format = TextFormat::kPlain;
  std::string key = "data.text";  // the key or the command that names the file, for messages
};

// Each spec is a file, a folder (the files below it that `folder` tells) or a glob. A glob names
// files of any extension: `*`, `?`, `[a-z]` and `[!a-z]` within a name, `**` for any number of
// folders, `\` before a literal character. Names that begin with a dot match only a pattern with
// the dot. Links to folders below a folder or a wildcard are not followed. Relative paths start at
// the working directory. The result is sorted by path, each file once. Throws IoError if a spec
// matches no file or a folder cannot be read.
[[nodiscard]] std::vector<TextFile> find_text_files(const std::vector<std::string>& specs,
                                                    const std::string& key = "data.text",
                                                    FolderFiles folder = FolderFiles::kText);

// Of all files together.
[[nodiscard]] std::int64_t bytes_of(const std::vector<TextFile>& files);

class Hasher;
// Path, size and modification time: what a cache of the file is known by.
void add_identity(Hasher& hasher, const TextFile& file);

// Matches one component of a path with one component of a pattern. `?` and classes match one UTF-8
// character.
[[nodiscard]] bool matches_glob(std::string_view name, std::string_view pattern);

}  // namespace sluice
