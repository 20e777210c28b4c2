// The destination of a rank's output. Under the launcher a rank writes to a pipe; SLUICE_TTY and
// COLUMNS describe the launcher's own standard output.
#pragma once

#include <string_view>

namespace sluice {

struct TerminalInfo {
  bool interactive = false;  // lines can be rewritten in place
  int columns = 0;           // 0: unknown
};

// Reads the environment, then asks the descriptor. Must not run while another thread changes the
// environment.
[[nodiscard]] TerminalInfo terminal_info(int fd);

// Returns to the start of the line and clears it. The launcher's rank logs drop the overwritten
// text.
inline constexpr std::string_view kClearLine = "\r\x1b[K";

}  // namespace sluice
