// When an exchange between tensor-parallel ranks, inside an operation, was where.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "runtime/program/program.hpp"

namespace sluice {

// Between `started` and `needed` the rank computed on; then it waited until `finished`. An exchange
// that is over before it is needed is not seen to be until then.
struct ExchangeTiming {
  OpId op = -1;  // of the compute lane, during which it was finished
  std::string name;
  std::int64_t bytes = 0;  // sent
  std::chrono::steady_clock::time_point started, needed, finished;
};

}  // namespace sluice
