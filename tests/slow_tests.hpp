// Tests always run samples of a grid. With SLUICE_SLOW_TESTS=1 they run all of it, and every call
// that can fail.
#pragma once

#include <cstdlib>

namespace sluice {

inline bool slow_tests() { return std::getenv("SLUICE_SLOW_TESTS") != nullptr; }

}  // namespace sluice
