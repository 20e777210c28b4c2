// Which files `data.text` means, and how a file is read in pieces.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct TextFile {
  std::string path;  // absolute, without links
  std::int64_t size_bytes = 0;
  std::int64_t modified_ns = 0;
  bool named = false;  // given by name, so that being empty or binary is worth an error
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

// Calls piece(text, is_last) for consecutive parts of the file, about `piece_bytes` each, which
// together are the file; returns false without a call where its beginning holds a zero byte (a
// binary) and !file.named. A cut lies where no word of the usual split patterns lies across it (see
// find_cut). Throws IoError where the file cannot be read or is no longer as long as
// file.size_bytes.
bool read_pieces(const TextFile& file, std::size_t piece_bytes,
                 const std::function<void(std::string&& text, bool is_last)>& piece);

// The last place in `text`, not 0, where it can be cut so that both parts are tokenised as the
// whole would be: before a space that follows a visible ASCII character, or between a newline that
// follows a visible character and a letter. 0: there is none.
[[nodiscard]] std::size_t find_cut(std::string_view text);

}  // namespace sluice
