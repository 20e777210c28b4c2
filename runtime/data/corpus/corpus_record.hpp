// One record of a corpus: its text in, its line out. The line keeps every byte but the text, so
// other keys, their order and their numbers stay. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/data/corpus/json_object.hpp"
#include "runtime/data/corpus/unit_reader.hpp"

namespace sluice {

struct RecordKeys {
  std::string text = "text", url = "url";
};

struct CorpusRecord {
  std::string text;  // valid UTF-8
  std::optional<std::string> url;
  std::string_view reason;  // of static storage: why there is no text; empty: there is one
  std::string error;        // the details
  JsonValue place;          // of the text in the line
};

// Reasons: record.broken (no JSON object), record.no_text (no string under the key), record.empty,
// record.too_long. A plain file is its text; invalid UTF-8 becomes U+FFFD.
[[nodiscard]] CorpusRecord parse_record(const RawRecord& raw, std::string_view bytes,
                                        const RecordKeys& keys);

// The place of a record, for people: "FILE, row 7" or "FILE, byte 1234".
[[nodiscard]] std::string place_of(const TextFile& file, const RawRecord& raw);

// Appends the line of a record with `text` in place of its own. A plain file becomes {"text": ...}.
void append_record(const RawRecord& raw, std::string_view bytes, const CorpusRecord& record,
                   std::string_view text, std::string& out);

// Appends the record as it came in, as a JSON line with a first key "_rejected" that holds `why`,
// the members of a JSON object without brackets. A line that is no JSON object is the value of
// "_line".
void append_rejected(const RawRecord& raw, std::string_view bytes, const CorpusRecord& record,
                     std::string_view why, std::string& out);

}  // namespace sluice
