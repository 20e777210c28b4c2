// The request to stop: SIGTERM (launcher, batch system) or SIGINT (Ctrl-C of a rank without a
// launcher) sets a flag that the training loop reads at each step's end. A second signal ends the
// process at once with exit code 130.
//
// A batch system or systemd signals a whole process group, and the launcher forwards its own
// signal. So a SIGTERM within kSameRequest of the last one is the same request.
#pragma once

#include <chrono>

namespace sluice {

inline constexpr int kInterruptedExitCode = 130;
inline constexpr std::chrono::milliseconds kSameRequest{300};

// Installs the handlers for the whole process and clears the flag. System calls are restarted.
void install_stop_handlers();

// The first signal received; 0 if none. Any thread; one relaxed load.
[[nodiscard]] int stop_signal();
[[nodiscard]] inline bool stop_requested() { return stop_signal() != 0; }

}  // namespace sluice
