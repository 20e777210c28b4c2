// How a rank is asked to stop: SIGTERM (from the launcher, a batch system) or SIGINT (Ctrl-C of a
// rank without a launcher) set a flag that the training loop reads at each step's end. The second
// one ends the process at once with exit code 130.
//
// A batch system or systemd signals a whole group of processes, the launcher forwards what it got:
// a SIGTERM within kSameRequest of the one before is the same request.
#pragma once

#include <chrono>

namespace sluice {

inline constexpr int kInterruptedExitCode = 130;
inline constexpr std::chrono::milliseconds kSameRequest{300};

// Installs the handlers, for the whole process, and lowers the flag. System calls are restarted.
void install_stop_handlers();

// The first signal that came; 0: none has. Any thread; one relaxed load.
[[nodiscard]] int stop_signal();
[[nodiscard]] inline bool stop_requested() { return stop_signal() != 0; }

}  // namespace sluice
