// The documents of a file of text. A plain file is one document. A file of JSON lines has a
// document on each line. Either may be packed by gzip. Thread-safe: nothing is kept between calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/data/text_files.hpp"

namespace sluice {

struct ReadOptions {
  std::size_t piece_bytes = 2U << 20U;  // of a plain document
  std::string json_key = "text";        // whose value is the text of a JSON line
};

// A part of a document, or all of it.
struct DocumentPiece {
  std::string text;
  bool ends_document = false;
  std::int64_t line = 0;        // of JSON lines, from 1; 0: a plain document
  std::int64_t offset = 0;      // in the document
  std::int64_t file_bytes = 0;  // of the file, read since the piece before
};

struct ReadResult {
  std::int64_t documents = 0;  // those that are not empty
  std::string left_out;        // a binary that was found, not named: its kind
  bool json_as_text = false;   // a .json that is one JSON document
};

// Calls `piece` for the documents in order. A plain document comes in consecutive parts of about
// piece_bytes, cut where no word of the usual split patterns lies across (see find_cut); the
// document of a JSON line comes whole. Empty documents and blank lines are left out.
//
// What a file is follows from its first bytes, and for JSON lines from its name (TextFile::format).
// A binary is left out, or an error where the file is named. Throws IoError with the file, and with
// the line or the offset, where the file cannot be read, is damaged, became shorter, or has a line
// without its text.
ReadResult read_documents(const TextFile& file, const ReadOptions& options,
                          const std::function<void(DocumentPiece&& piece)>& piece);

// "FILE, line 7" or "FILE, byte 1234": where `offset` of a piece's text is, for people.
[[nodiscard]] std::string place_of(const TextFile& file, std::int64_t line, std::int64_t offset);

// The last place in `text`, not 0, where it can be cut so that both parts are tokenised as the
// whole would be: before a space that follows a visible ASCII character, or between a newline that
// follows a visible character and a letter. 0: there is none.
[[nodiscard]] std::size_t find_cut(std::string_view text);

}  // namespace sluice
