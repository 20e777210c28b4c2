// Samples of a grid run always; all of it, and every call that can fail, with SLUICE_SLOW_TESTS=1.
#pragma once

#include <cstdlib>

namespace sluice {

inline bool slow_tests() { return std::getenv("SLUICE_SLOW_TESTS") != nullptr; }

}  // namespace sluice
