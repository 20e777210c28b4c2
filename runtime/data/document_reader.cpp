#include "runtime/data/document_reader.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "runtime/data/byte_source.hpp"
#include "runtime/data/json_lines.hpp"
#include "runtime/data/tokenizer/utf8.hpp"

namespace sluice {
namespace {

using Sink = std::function<void(DocumentPiece&& piece)>;

// A text longer than this without a place to cut it is cut between two characters.
constexpr std::size_t kLongestUncut = 64U << 20U;
constexpr std::size_t kBinaryProbe = 8192;
constexpr std::size_t kLongestLine = 256U << 20U;
constexpr std::size_t kLongestProbedLine = 16U << 20U;

// False if the last character may be white space. One newline after a visible character is a word
// of its own; of several newlines the last one is separate, but only before text.
bool ends_visibly(std::string_view text) {
  const auto last = static_cast<unsigned char>(text.back());
  if (last < 0x80) return last > 0x20 && last < 0x7F;
  if (text.size() < 3) return false;
  const std::string_view character = text.substr(text.size() - 3);
  const auto lead = static_cast<unsigned char>(character[0]);
  return lead >= 0xE3 && lead <= 0xEF && character != "\u3000";
}

std::string beginning_of(const TextFile& file) {
  std::string text(kBinaryProbe, '\0');
  text.resize(open_bytes(file)->read(text));
  return text;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\f\v") == std::string_view::npos;
}

// Is a .json a file of lines? Its first line is an object with the key, or its first two are
// objects. Anything else is one JSON document.
bool holds_json_lines(const TextFile& file, const std::string& key) {
  const auto source = open_bytes(file);
  LineReader lines(*source, kLongestProbedLine);
  std::string_view line;
  for (int objects = 0; lines.next(line) == LineReader::Next::kLine;) {
    if (is_blank(line)) continue;
    const JsonLine parsed = parse_json_line(line, key);
    if (!parsed.is_json || !parsed.is_object) return false;
    if (parsed.error.empty() || ++objects == 2) return true;
  }
  return false;
}

// Some editors put the mark before UTF-8.
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string_view without_mark(std::string_view line, std::int64_t number) {
  if (number == 1 && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  return line;
}

std::int64_t read_json_lines(const TextFile& file, const std::string& key, const Sink& piece) {
  std::int64_t documents = 0, unused_bytes = 0;
  read_lines(file, {key}, [&](const TextLine& line) {
    unused_bytes += line.file_bytes;
    JsonLine parsed = parse_json_line(line.text, key);
    if (!parsed.error.empty()) {
      throw IoError(file.key + ": " + place_of(file, line.number, 0) + ": " + parsed.error,
                    file.path);
    }
    if (parsed.text.empty()) return;
    ++documents;
    piece({std::move(parsed.text), true, line.number, 0, std::exchange(unused_bytes, 0)});
  });
  return documents;
}

// The position at which to cut `text`, which continues behind its end; 0: none yet.
std::size_t place_to_cut(std::string_view text) {
  std::size_t cut = find_cut(text);
  if (cut == 0 && text.size() >= kLongestUncut) cut = valid_utf8_prefix(text);
  if (cut == 0 && text.size() >= kLongestUncut) cut = text.size();
  return cut;
}

std::int64_t read_plain(const TextFile& file, std::size_t piece_bytes, const Sink& piece) {
  const auto source = open_bytes(file);
  std::string text;
  std::int64_t offset = 0, told_bytes = 0;
  const auto give = [&](std::string&& part, bool last) {
    const auto size = static_cast<std::int64_t>(part.size());
    const std::int64_t used_bytes = source->used_bytes();
    if (part.capacity() / 2 > part.size()) part.shrink_to_fit();
    piece({std::move(part), last, 0, offset, used_bytes - told_bytes});
    offset += size;
    told_bytes = used_bytes;
  };
  while (!source->at_end()) {
    const std::size_t held = text.size();
    text.resize(held + std::min(std::max(piece_bytes, held), source->most_left()));
    text.resize(held + source->read(std::span(text).subspan(held)));
    if (offset == 0 && text.starts_with(kByteOrderMark)) {
      text.erase(0, kByteOrderMark.size());
      offset = kByteOrderMark.size();
    }
    if (source->at_end()) break;
    const std::size_t cut = place_to_cut(text);
    if (cut == 0) continue;
    std::string rest = text.substr(cut);
    text.resize(cut);
    give(std::move(text), false);
    text = std::move(rest);
  }
  if (text.empty() && told_bytes == 0) return 0;
  give(std::move(text), true);
  return 1;
}

}  // namespace

std::size_t find_cut(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = text.size(); i-- > 1;) {
    const unsigned char before = byte(i - 1), after = byte(i);
    if (after == ' ' && before > 0x20 && before < 0x7F) return i;
    if (before != '\n' || i < 2) continue;
    const bool letter = (after >= 'a' && after <= 'z') || (after >= 'A' && after <= 'Z') ||
                        (after >= 0xE4 && after <= 0xE9);  // U+4000..U+9FFF: ideographs
    if (letter && ends_visibly(text.substr(0, i - 1))) return i;
  }
  return 0;
}

std::string place_of(const TextFile& file, std::int64_t line, std::int64_t offset) {
  if (line == 0) return file.path + ", byte " + std::to_string(offset);
  return file.path + (file.format == TextFormat::kParquet ? ", row " : ", line ") +
         std::to_string(line);
}

std::string kind_left_out(const TextFile& file) {
  if (file.format == TextFormat::kParquet) return "";
  std::string kind = kind_without_text(file, beginning_of(file));
  if (!kind.empty() && file.named) {
    throw IoError(file.key + ": " + file.path + " is " + kind, file.path);
  }
  return kind;
}

bool has_json_lines(const TextFile& file, const std::string& key) {
  return file.format == TextFormat::kJsonLines || file.format == TextFormat::kParquet ||
         (file.format == TextFormat::kJson && holds_json_lines(file, key));
}

void read_lines(const TextFile& file, const std::vector<std::string>& columns,
                const std::function<void(const TextLine& line)>& sink) {
  const auto source = open_bytes(file, columns);
  LineReader lines(*source, kLongestLine);
  std::int64_t told_bytes = 0;
  std::string_view line;
  for (;;) {
    const LineReader::Next next = lines.next(line);
    if (next == LineReader::Next::kEnd) return;
    if (next == LineReader::Next::kTooLong) {
      throw IoError(file.key + ": " + place_of(file, lines.number(), 0) + ": longer than " +
                        format_bytes(kLongestLine) + ", the most that a JSON line may have",
                    file.path);
    }
    line = without_mark(line, lines.number());
    if (is_blank(line)) continue;
    const std::int64_t used_bytes = source->used_bytes();
    sink({line, lines.number(), used_bytes - told_bytes});
    told_bytes = used_bytes;
  }
}

ReadResult read_documents(const TextFile& file, const ReadOptions& options, const Sink& piece) {
  ReadResult result;
  result.left_out = kind_left_out(file);
  if (!result.left_out.empty()) return result;
  const bool lines = has_json_lines(file, options.json_key);
  result.json_as_text = file.format != TextFormat::kPlain && !lines;
  result.documents = lines ? read_json_lines(file, options.json_key, piece)
                           : read_plain(file, options.piece_bytes, piece);
  return result;
}

}  // namespace sluice
