// Where a rank's output ends up. Under the launcher a rank writes to a pipe; the launcher says in
// SLUICE_TTY and COLUMNS what its own standard output is.
#pragma once

#include <string_view>

namespace sluice {

struct TerminalInfo {
  bool interactive = false;  // lines can be rewritten in place
  int columns = 0;           // 0: unknown
};

// Reads the environment, then asks the descriptor. Not to be called while another thread changes
// the environment.
[[nodiscard]] TerminalInfo terminal_info(int fd);

// Returns to the start of the line and clears it. The launcher's rank logs drop what it overwrites.
inline constexpr std::string_view kClearLine = "\r\x1b[K";

}  // namespace sluice
