// The lines that this process logged to standard error because no sink was installed (log.hpp). A
// launcher leaves the same lines out of its ranks' output on the terminal.
#pragma once

#include <string>
#include <vector>

namespace sluice {

// The first 500 lines. Thread-safe.
[[nodiscard]] std::vector<std::string> plain_lines();

}  // namespace sluice
