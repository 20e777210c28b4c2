// Faults of the host that show as a bare error code far from their cause.
#pragma once

#include <string>

namespace sluice {

// For a thread or process that could not start (EAGAIN): the limits, their present use, and the
// remedy. One line, without a full stop.
[[nodiscard]] std::string process_limit_remedy();

// Appends process_limit_remedy() if `text` contains strerror(EAGAIN) and no remedy yet. The test is
// on the text, because libtorch and libgomp report a failed thread start by that message alone.
[[nodiscard]] std::string with_remedy(std::string text);

// Throws Error where 127.0.0.1 cannot be reached because the loopback interface is down: the
// ranks of one host meet there.
void check_loopback_is_up();

}  // namespace sluice
