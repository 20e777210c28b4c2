// rank-N.log: a rank's output line by line, and its last lines for a report. A line that was
// rewritten in place (the progress line on a terminal) is kept only in its last form. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/posix/descriptor.hpp"

namespace sluice {

// Assembles the chunks of one stream into lines. A carriage return or a clear-line sequence removes
// text as on a terminal, and colours are left out; all other bytes stay.
class LineFolder {
 public:
  // Appends complete lines to `lines`, with their line breaks. A line longer than kLongestLine
  // comes in pieces.
  void feed(std::string_view bytes, std::string& lines);
  // The rest of a last line without a line break.
  void finish(std::string& lines);

  static constexpr std::size_t kLongestLine = std::size_t{64} * 1024;

 private:
  std::string pending_;
};

class RankLog {
 public:
  static constexpr std::size_t kLastLines = 12;

  // Renames an existing file to <path>.1. Throws IoError.
  explicit RankLog(std::string path);

  // Never throws, since a full disk must not stop the supervision. Returns false (once) if writing
  // failed; problem() has the cause.
  bool append(std::string_view lines);
  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::vector<std::string> last_lines() const;

 private:
  void remember(std::string_view lines);

  std::string path_;
  Descriptor file_;
  std::string problem_;
  std::deque<std::string> last_;
  bool last_is_open_ = false;  // the last one has no line break yet
};

// Removes whole lines whose text is in `printed`: TEXT, "13:04:05.123 info    TEXT" and "... info
// [rank 1] TEXT"; all other output passes. A rank writes each line at once, so a line
// in two parts passes.
[[nodiscard]] std::string without_printed_lines(std::string_view bytes,
                                                std::span<const std::string> printed);

}  // namespace sluice
