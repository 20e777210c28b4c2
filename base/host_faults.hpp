// Faults of the host that show as a bare error code far from their cause.
#pragma once

#include <string>

namespace sluice {

// For EAGAIN of a thread or process that could not start: which limits there are, how full they
// are, and what to do. One line, without a full stop.
[[nodiscard]] std::string process_limit_remedy();

// Adds the remedy to a text with EAGAIN's words. By the text: libtorch and libgomp say no more than
// the words of a thread that they could not start.
[[nodiscard]] std::string with_remedy(std::string text);

// Throws Error where 127.0.0.1 cannot be reached because the loopback interface is down: the
// ranks of one host meet there.
void check_loopback_is_up();

}  // namespace sluice
