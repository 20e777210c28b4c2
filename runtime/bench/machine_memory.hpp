// Whether what a benchmark wants to allocate is there, asked before the system would end it.
#pragma once

#include <cstdint>

namespace sluice {

// Throws ConfigError, naming the option, where count x bytes_each is more than three quarters of
// the machine's memory.
void check_machine_memory(std::int64_t count, std::int64_t bytes_each, const char* option);

}  // namespace sluice
