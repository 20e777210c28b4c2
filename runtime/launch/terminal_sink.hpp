// The launcher's own output, written without ever blocking the launcher, for example on a terminal
// after Ctrl-S or a pipe that no process reads. Pending output waits in a buffer. Above
// kBufferBytes the oldest output is dropped, and a line says so. A closed reader is ignored. Not
// thread-safe. REQUIRES: SIGPIPE is ignored.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/posix/descriptor.hpp"

namespace sluice {

class TerminalSink {
 public:
  static constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

  explicit TerminalSink(int fd);  // borrowed

  void write(std::string_view bytes);
  [[nodiscard]] bool pending() const { return !buffer_.empty(); }
  // Whether some output has been lost.
  [[nodiscard]] bool lost() const { return lost_ || pending(); }
  // Whether the reader was gone when output was written, as `head` is.
  [[nodiscard]] bool reader_gone() const { return reader_gone_; }
  [[nodiscard]] int fd() const {
    return own_ ? own_.get() : fd_;
  }                                 // poll it for POLLOUT if pending
  void flush();                     // what goes without waiting
  void flush_within(int limit_ms);  // waits for the reader, but no longer than this

 private:
  int fd_;
  Descriptor own_;  // a description of our own, non-blocking; none where the file never blocks
  std::string buffer_;
  bool broken_ = false;
  bool lost_ = false;
  bool reader_gone_ = false;
};

}  // namespace sluice
