#include "runtime/launch/rank_log.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "runtime/observe/file_io.hpp"
#include "runtime/observe/terminal.hpp"

namespace sluice {
namespace {

constexpr std::string_view kClear = "\x1b[K";
constexpr std::size_t kLongestRemembered = 400;  // bytes of a line in a report

// The part of a line that stays on a terminal: after its last carriage return, without clear
// sequences and colours.
std::string folded(std::string_view line) {
  std::string_view ending;
  if (line.ends_with('\n')) ending = line.ends_with("\r\n") ? "\r\n" : "\n";
  line.remove_suffix(ending.size());
  const std::size_t back = line.rfind('\r');
  if (back != std::string_view::npos) line.remove_prefix(back + 1);
  std::string text = without_colors(line);
  for (std::size_t at = text.find(kClear); at != std::string::npos; at = text.find(kClear, at)) {
    text.erase(at, kClear.size());
  }
  return text.append(ending);
}

// TEXT of "13:04:05.123 info    TEXT" and of "13:04:05.123 info    [rank 2] TEXT", which is how a
// process with several ranks names them; any other line is its own text.
std::string_view text_of_log_line(std::string_view line) {
  constexpr std::string_view kForm = "00:00:00.000 ", kRank = "[rank ";
  constexpr std::size_t kLevel = 8;  // "warning "
  if (line.size() < kForm.size() + kLevel || line[2] != ':' || line[5] != ':' || line[8] != '.') {
    return line;
  }
  line.remove_prefix(kForm.size() + kLevel);
  if (line.starts_with(kRank)) {
    const std::size_t digits_end = line.find_first_not_of("0123456789", kRank.size());
    if (line.substr(std::min(digits_end, line.size())).starts_with("] ")) {
      line.remove_prefix(digits_end + 2);
    }
  }
  return line;
}

}  // namespace

std::string without_printed_lines(std::string_view bytes, std::span<const std::string> printed) {
  std::string passed;
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find('\n'), bytes.size() - 1);
    const std::string_view line = bytes.substr(0, end + 1);
    bytes.remove_prefix(end + 1);
    std::string plain;
    std::string_view text;
    if (line.ends_with('\n')) {
      plain = without_colors(line.substr(0, line.size() - 1));
      text = plain;
      if (text.starts_with("\r\x1b[K")) text.remove_prefix(4);
      text = text_of_log_line(text);
    }
    if (text.empty() || std::find(printed.begin(), printed.end(), text) == printed.end())
      passed += line;
  }
  return passed;
}

void LineFolder::feed(std::string_view bytes, std::string& lines) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    if (end != std::string_view::npos) {
      pending_ += bytes.substr(0, end + 1);
      bytes.remove_prefix(end + 1);
      lines += folded(pending_);
      pending_.clear();
      continue;
    }
    pending_ += bytes;
    bytes = {};
  }
  if (pending_.size() <= kLongestLine) return;
  // Mostly rewritten lines: drop the overwritten text. The last byte may be half of "\r\n".
  const std::size_t back = pending_.rfind('\r', pending_.size() - 2);
  if (back != std::string::npos) pending_.erase(0, back);
  if (pending_.size() <= kLongestLine) return;
  lines += pending_;
  pending_.clear();
}

void LineFolder::finish(std::string& lines) {
  lines += folded(pending_);
  pending_.clear();
}

RankLog::RankLog(std::string path) : path_(std::move(path)) {
  keep_former_file(path_);
  file_ = open_for_append(path_);
}

bool RankLog::append(std::string_view lines) {
  if (lines.empty()) return true;
  remember(lines);
  if (!problem_.empty()) return true;
  try {
    write_all(file_.get(), lines, path_);
  } catch (const IoError& error) {
    problem_ = error.what();
    return false;
  }
  return true;
}

void RankLog::remember(std::string_view lines) {
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    const std::string_view line = lines.substr(0, end);
    if (!last_is_open_) last_.emplace_back();
    if (last_.back().size() < kLongestRemembered) {
      last_.back() += line.substr(0, kLongestRemembered - last_.back().size());
    }
    last_is_open_ = end == std::string_view::npos;
    lines.remove_prefix(last_is_open_ ? lines.size() : end + 1);
    if (last_.size() > kLastLines) last_.pop_front();
  }
}

std::vector<std::string> RankLog::last_lines() const { return {last_.begin(), last_.end()}; }

}  // namespace sluice
