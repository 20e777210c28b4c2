// JSON lines: one object a line; the value of one key is the text. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/data/byte_source.hpp"

namespace sluice {

// The lines of a source in order, without line ends (\n or \r\n). Memory: the longest line.
class LineReader {
 public:
  enum class Next { kLine, kEnd, kTooLong };
  // `from`: offset of the source's first byte in its file.
  LineReader(ByteSource& source, std::size_t longest_bytes, std::int64_t from = 0)
      : source_(source), longest_bytes_(longest_bytes), held_offset_(from) {}
  // `line` is valid until the next call. kTooLong: the next call continues behind the line.
  [[nodiscard]] Next next(std::string_view& line);
  // Skips the rest of the current line. False if no line begins before byte `end` of the file; the
  // reader may then be inside a line. Memory does not grow with the line.
  [[nodiscard]] bool skip_line(std::int64_t end);
  [[nodiscard]] std::int64_t number() const { return number_; }  // of the last line, from 1
  [[nodiscard]] std::int64_t offset() const { return offset_; }  // of the last line's first byte

 private:
  void read_more(std::size_t bytes);

  ByteSource& source_;
  std::size_t longest_bytes_;
  std::string held_;
  std::size_t from_ = 0;
  std::int64_t held_offset_;  // of held_[0]
  std::int64_t offset_ = 0, number_ = 0;
  bool skipping_ = false;
};

// Content of one line. `error` is empty, or the reason why the line has no text.
struct JsonLine {
  bool is_json = false;
  bool is_object = false;
  bool has_key = false;
  std::string text;
  std::string error;
};

// The id of nlohmann's error at a number beyond the range of a double, which is JSON all the same.
inline constexpr int kJsonNumberTooLarge = 406;

// Half a surrogate pair (\ud83d alone, which Python's json writes and reads) becomes U+FFFD.
// Numbers may be of any size.
[[nodiscard]] JsonLine parse_json_line(std::string_view line, const std::string& key);

// `line` with "\ufffd" for each half of a surrogate pair.
[[nodiscard]] std::string without_lone_surrogates(std::string_view line);

}  // namespace sluice
