// Start and end time of one exchange between tensor-parallel ranks inside a unit.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "runtime/program/program.hpp"

namespace sluice {

// The rank computed from `started` to `needed` and waited from `needed` to `finished`. An exchange
// that completes before `needed` is only noticed at `needed`.
struct ExchangeTiming {
  OpId op = -1;  // operation of the compute lane that waited for the exchange
  std::string name;
  Exchange what;  // one of those that the operation declares
  std::chrono::steady_clock::time_point started, needed, finished;
};

}  // namespace sluice
