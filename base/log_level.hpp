// Which lines of the log are shown, in the whole process: --quiet and --verbose. Thread-safe.
#pragma once

#include "base/log.hpp"

namespace sluice {

// Lines below this level are dropped; at first kInfo.
void set_log_level(LogLevel least);
// Whether lines of this level are shown. Progress is shown as kInfo is.
[[nodiscard]] bool log_shows(LogLevel level);

}  // namespace sluice
