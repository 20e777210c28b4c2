// The lines that this process logged to standard error because no sink was installed (log.hpp): a
// launcher's own. Its ranks' terminal leaves them out.
#pragma once

#include <string>
#include <vector>

namespace sluice {

// The first few hundred. Thread-safe.
[[nodiscard]] std::vector<std::string> plain_lines();

}  // namespace sluice
