// The line at the bottom of a terminal that is rewritten in place, while other lines appear above
// it. Elsewhere nothing is shown. Thread-safe; show(), remove() and above() write at once.
//
// A terminal that became narrower has wrapped the line (tmux, VTE, kitty, Windows Terminal); the
// rows of the wrapped line are removed. xterm cuts lines instead, and loses a row above.
#pragma once

#include <cstdio>
#include <functional>
#include <mutex>
#include <string>

#include "runtime/observe/terminal.hpp"

namespace sluice {

class StatusLine {
 public:
  // `out`: borrowed. `rewrites`: as TerminalInfo.
  StatusLine(std::FILE* out, bool rewrites);
  explicit StatusLine(std::FILE* out = stdout);
  ~StatusLine() { remove(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  [[nodiscard]] bool rewrites() const { return rewrites_; }
  [[nodiscard]] int columns() const;  // of the terminal now; 0: unknown

  // Replaces the line, cut to the terminal's width. `text`: one line of UTF-8, without colours.
  void show(const std::string& text);
  void remove();
  // Runs `print`, which writes whole lines to the terminal, with the line out of the way.
  void above(const std::function<void()>& print);

 private:
  void take_off();  // REQUIRES: mutex_ is held
  void put(const std::string& text);

  std::FILE* const out_;
  const bool rewrites_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  TerminalWidth width_;
  std::string text_;  // as show() got it; empty: no line
  int shown_columns_ = 0;
};

}  // namespace sluice
