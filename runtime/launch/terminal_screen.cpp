#include "runtime/launch/terminal_screen.hpp"

#include "runtime/observe/terminal.hpp"

namespace sluice {
namespace {

constexpr std::size_t kLongestLine = 4096;  // more is no line at the bottom of a terminal

}  // namespace

void TerminalScreen::write_out(std::string_view bytes) {
  out_.write(bytes);
  if (!joined_) return;
  open_ += bytes;
  if (const std::size_t end = open_.find_last_of("\r\n"); end != std::string::npos) {
    open_.erase(0, end + 1);
  }
  constexpr std::string_view kClear = "\x1b[K";
  if (open_.starts_with(kClear)) open_.erase(0, kClear.size());
  if (open_.size() > kLongestLine) open_.clear();
}

void TerminalScreen::write_err(std::string_view bytes) {
  if (open_.empty()) return err_.write(bytes);
  out_.write(kClearLine);
  err_.write(bytes);
  if (bytes.ends_with('\n')) {
    out_.write(open_);
  } else {
    open_.clear();
  }
}

void TerminalScreen::close_line() {
  if (open_.empty()) return;
  out_.write(kClearLine);
  open_.clear();
}

}  // namespace sluice
