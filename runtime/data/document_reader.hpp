// The documents of a text file. A plain file is one document; a file of JSON lines has one document
// on each line. Both may be packed by gzip or zstd. A Parquet file has one document in each row and
// is read as JSON lines. Thread-safe: no state between calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/text_files.hpp"

namespace sluice {

struct ReadOptions {
  std::size_t piece_bytes = 2U << 20U;  // of a plain document
  std::string json_key = "text";        // whose value is the text of a JSON line
};

// A document, or a part of one.
struct DocumentPiece {
  std::string text;
  bool ends_document = false;
  std::int64_t line = 0;        // of JSON lines, from 1; 0: a plain document
  std::int64_t offset = 0;      // in the document
  std::int64_t file_bytes = 0;  // of the file, read since the piece before
};

struct ReadResult {
  std::int64_t documents = 0;  // those that are not empty
  std::string left_out;        // a file without text that was found, not named: its kind
  bool json_as_text = false;   // a .json that is one JSON document
};

// Calls `piece` for the documents in order. A plain document comes in consecutive pieces of about
// piece_bytes. A cut never crosses a word of the usual split patterns (find_cut). The document of a
// JSON line comes whole. Empty documents and blank lines are left out.
//
// The first bytes decide the file's type; for JSON lines and tables the name decides
// (TextFile::format). A file without text (kind_without_text) is left out, or is an error if the
// user named the file. Throws IoError with the file
// and the line or offset if the file cannot be read, is damaged, became shorter, or has a line
// without text.
ReadResult read_documents(const TextFile& file, const ReadOptions& options,
                          const std::function<void(DocumentPiece&& piece)>& piece);

// The kind of a file without text that was found, not named: "UTF-16; convert it (...)"; empty:
// the file may be text. Throws IoError with the kind if the user named the file.
[[nodiscard]] std::string kind_left_out(const TextFile& file);

// True if each line of the file is a document: by name (a row of Parquet is a line), or a .json
// whose first lines say so.
[[nodiscard]] bool has_json_lines(const TextFile& file, const std::string& json_key);

struct TextLine {
  std::string_view text;        // without line end; valid during the call
  std::int64_t number = 0;      // from 1
  std::int64_t file_bytes = 0;  // of the file, read since the line before
};

// Calls `sink` for the lines in order, without the blank ones. `columns` as in open_bytes. Throws
// IoError as read_documents.
void read_lines(const TextFile& file, const std::vector<std::string>& columns,
                const std::function<void(const TextLine& line)>& sink);

// The place of `offset` in a piece's text, for people: "FILE, line 7", "FILE, row 7" or "FILE, byte
// 1234".
[[nodiscard]] std::string place_of(const TextFile& file, std::int64_t line, std::int64_t offset);

// The last position in `text`, not 0, at which a cut leaves both parts tokenised as in the whole
// text: before a space that follows a visible ASCII character, or between a newline that follows a
// visible character and a letter. 0: no such position.
[[nodiscard]] std::size_t find_cut(std::string_view text);

}  // namespace sluice
