// The launcher's own output, written so that it can never stop the launcher: a terminal on which
// Ctrl-S was typed, a pipe that nobody reads. What cannot be written yet waits in a buffer; above
// kBufferBytes the oldest goes, and a line says so. A reader that went away is forgotten. Not
// thread-safe. SIGPIPE must be ignored while it is used.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/observe/file_io.hpp"

namespace sluice {

class TerminalSink {
 public:
  static constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

  explicit TerminalSink(int fd);  // borrowed

  void write(std::string_view bytes);
  [[nodiscard]] bool pending() const { return !buffer_.empty(); }
  // Some of what was written has not arrived.
  [[nodiscard]] bool lost() const { return lost_ || pending(); }
  [[nodiscard]] int fd() const {
    return own_ ? own_.get() : fd_;
  }                                 // poll it for POLLOUT if pending
  void flush();                     // what goes without waiting
  void flush_within(int limit_ms);  // waits for the reader, but no longer than this

 private:
  int fd_;
  UniqueFd own_;  // a description of our own, non-blocking; none where the file never blocks
  std::string buffer_;
  bool broken_ = false;
  bool lost_ = false;
};

}  // namespace sluice
