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
  LineReader(ByteSource& source, std::size_t longest_bytes)
      : source_(source), longest_bytes_(longest_bytes) {}
  // `line` is valid until the next call.
  [[nodiscard]] Next next(std::string_view& line);
  [[nodiscard]] std::int64_t number() const { return number_; }  // of the last line, from 1

 private:
  ByteSource& source_;
  std::size_t longest_bytes_;
  std::string held_;
  std::size_t from_ = 0;
  std::int64_t number_ = 0;
};

// Content of one line. `error` is empty, or the reason why the line has no text.
struct JsonLine {
  bool is_json = false;
  bool is_object = false;
  bool has_key = false;
  std::string text;
  std::string error;
};

// Half a surrogate pair (\ud83d alone, which Python's json writes and reads) becomes U+FFFD.
[[nodiscard]] JsonLine parse_json_line(std::string_view line, const std::string& key);

}  // namespace sluice
