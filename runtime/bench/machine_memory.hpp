// Checks that a benchmark's memory is available, before the system would kill the process.
#pragma once

#include <cstdint>

namespace sluice {

// Throws ConfigError, naming the option, if count x bytes_each exceeds three quarters of the
// machine's memory.
void check_machine_memory(std::int64_t count, std::int64_t bytes_each, const char* option);

}  // namespace sluice
