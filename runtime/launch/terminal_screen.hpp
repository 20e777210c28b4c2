// The launcher's standard output and error as one screen. While rank 0 rewrites a line at the
// bottom of the terminal (status_line.hpp), text on standard error goes above that line: two pipes
// have no order, so only the launcher can keep the two apart. Where one of them is no terminal,
// text passes as it comes. Not thread-safe. REQUIRES: SIGPIPE is ignored.
#pragma once

#include <string>
#include <string_view>

#include "runtime/launch/terminal_sink.hpp"

namespace sluice {

class TerminalScreen {
 public:
  // Borrows the descriptors. `joined`: both are one terminal, on which lines can be rewritten.
  TerminalScreen(int out_fd, int err_fd, bool joined)
      : out_(out_fd), err_(err_fd), joined_(joined) {}

  void write_out(std::string_view bytes);
  // Whole lines stay above the open line.
  void write_err(std::string_view bytes);
  // Removes an open line whose owner has ended.
  void close_line();

  [[nodiscard]] TerminalSink& out() { return out_; }
  [[nodiscard]] TerminalSink& err() { return err_; }

 private:
  TerminalSink out_;
  TerminalSink err_;
  const bool joined_;
  std::string open_;  // what standard output has shown since its last line break
};

}  // namespace sluice
