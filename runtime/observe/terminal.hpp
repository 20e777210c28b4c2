// The destination of this process's output, and what it can show. Under the launcher a rank writes
// to pipes; SLUICE_TTY and COLUMNS describe the launcher's own standard output, and
// SLUICE_STDERR_TTY its standard error. The only place that decides about colours and signs:
//   TERM          empty or "dumb": nothing is rewritten in place, no colours
//   NO_COLOR      not empty: no colours
//   LC_ALL, LC_CTYPE, LANG   the first that is not empty names the character set
#pragma once

#include <string>
#include <string_view>

#include "base/posix/descriptor.hpp"

namespace sluice {

struct TerminalInfo {
  bool interactive = false;  // a terminal: a person reads
  bool rewrites = false;     // lines can be rewritten in place
  bool colors = false;
  // UTF-8, outside of Chinese, Japanese and Korean locales, whose terminals may draw bars and
  // arrows two columns wide.
  bool utf8 = false;
  int columns = 0;  // at this moment; 0: unknown
};

// Reads the environment, then asks the descriptor. Must not run while another thread changes the
// environment.
[[nodiscard]] TerminalInfo terminal_info(int fd);

// The width of a terminal, also after it was resized. Behind the launcher's pipe the controlling
// terminal is asked, if its width was that of the launcher's standard output at the start. Not
// thread-safe.
class TerminalWidth {
 public:
  explicit TerminalWidth(int fd);
  [[nodiscard]] int columns() const;  // 0: unknown

 private:
  int asked_;  // descriptor of the terminal; -1: none
  Descriptor controlling_;
  int fixed_;  // where no terminal can be asked
};

// Returns to the start of the line and clears it. The launcher's rank logs drop the overwritten
// text.
inline constexpr std::string_view kClearLine = "\r\x1b[K";
// The same after a move to the line above, and before it.
inline constexpr std::string_view kLineUp = "\x1b[1A";

enum class Color { kWarning, kError, kHeading };

// `text` in this colour where `terminal` has colours.
[[nodiscard]] std::string colored(Color color, std::string_view text, const TerminalInfo& terminal);
// `text` without colours: without sequences ESC [ ... m.
[[nodiscard]] std::string without_colors(std::string_view text);

// Columns that UTF-8 text takes: its code points, each one column wide.
[[nodiscard]] int columns_of(std::string_view text);
// The beginning of UTF-8 text that takes at most so many columns.
[[nodiscard]] std::string_view first_columns(std::string_view text, int columns);

}  // namespace sluice
