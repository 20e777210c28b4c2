#include "runtime/data/corpus/corpus_record.hpp"

#include <array>

#include "runtime/data/document_reader.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

void append_plain(std::string_view text, std::string& out) {
  out += "{\"text\": ";
  append_json_string(text, out);
  out += "}";
}

CorpusRecord without_text(std::string_view reason, std::string error) {
  CorpusRecord record;
  record.reason = reason;
  record.error = std::move(error);
  return record;
}

}  // namespace

CorpusRecord parse_record(const RawRecord& raw, std::string_view bytes, const RecordKeys& keys) {
  if (raw.too_long) return without_text("record.too_long", "");
  CorpusRecord record;
  if (!raw.line) {
    record.text = with_valid_utf8(bytes);
    return record;
  }
  const std::array<std::string_view, 2> names{keys.text, keys.url};
  JsonObject object = scan_json_object(bytes, names);
  if (!object.error.empty()) return without_text("record.broken", std::move(object.error));
  const std::optional<JsonValue>& text_value = object.values[0];
  const std::optional<JsonValue>& url_value = object.values[1];
  if (!text_value) return without_text("record.no_text", "no key '" + keys.text + "'");
  std::optional<std::string> text = json_text(text_value->in(bytes));
  if (!text) {
    return without_text("record.no_text", "the value of '" + keys.text + "' is not a string");
  }
  record.place = *text_value;
  record.text = std::move(*text);
  if (url_value) record.url = json_text(url_value->in(bytes));
  if (record.text.empty()) record.reason = "record.empty";
  return record;
}

std::string place_of(const TextFile& file, const RawRecord& raw) {
  return place_of(file, file.format == TextFormat::kParquet ? raw.offset : 0, raw.offset);
}

void append_record(const RawRecord& raw, std::string_view bytes, const CorpusRecord& record,
                   std::string_view text, std::string& out) {
  if (!raw.line) {
    append_plain(text, out);
  } else if (text == record.text) {
    out += bytes;
  } else {
    out += bytes.substr(0, record.place.begin);
    append_json_string(text, out);
    out += bytes.substr(record.place.end);
  }
  out += '\n';
}

void append_rejected(const RawRecord& raw, std::string_view bytes, const CorpusRecord& record,
                     std::string_view why, std::string& out) {
  out += "{\"_rejected\": {";
  out += why;
  out += "}";
  if (!raw.line) {
    out += ", \"text\": ";
    append_json_string(record.text, out);
    out += "}";
  } else if (record.reason == "record.broken" || raw.too_long) {
    out += ", \"_line\": ";
    append_json_string(bytes, out);
    out += "}";
  } else {
    std::string_view members = bytes.substr(bytes.find('{') + 1);
    members.remove_prefix(members.find_first_not_of(" \t\r\n"));
    out += members.starts_with('}') ? "" : ", ";
    out += members;
  }
  out += '\n';
}

}  // namespace sluice
