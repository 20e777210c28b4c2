// rank-N.log: what a rank prints, line by line, and the last few lines for a report. A line that
// was rewritten in place (the progress line on a terminal) is kept in its last form only. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/observe/file_io.hpp"

namespace sluice {

// Puts the chunks of one stream together into lines. Bytes stay as they are, but for what a
// carriage return or a clear-line sequence takes off a terminal. Without either, output is the
// input.
class LineFolder {
 public:
  // Appends what is complete to `lines`, line breaks included. A line longer than kLongestLine
  // comes in pieces.
  void feed(std::string_view bytes, std::string& lines);
  // What is left of a last line without a line break.
  void finish(std::string& lines);

  static constexpr std::size_t kLongestLine = std::size_t{64} * 1024;

 private:
  std::string pending_;
};

class RankLog {
 public:
  static constexpr std::size_t kLastLines = 12;

  // A former file is kept as <path>.1. Throws IoError.
  explicit RankLog(std::string path);

  // Never throws, since a full disk must not stop the supervision: false (once) where writing
  // failed, with the cause in problem().
  bool append(std::string_view lines);
  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::vector<std::string> last_lines() const;

 private:
  void remember(std::string_view lines);

  std::string path_;
  UniqueFd file_;
  std::string problem_;
  std::deque<std::string> last_;
  bool last_is_open_ = false;  // the last one has no line break yet
};

// Whole lines of a rank's log ("13:04:05.123 info    TEXT" or "... info    [rank 1] TEXT") whose
// TEXT is one of `said` are left out; all else passes. A rank writes each line at once: a line that
// comes in two parts passes.
[[nodiscard]] std::string without_said_lines(std::string_view bytes,
                                             std::span<const std::string> said);

}  // namespace sluice
