#include "runtime/bench/machine_memory.hpp"

#include <unistd.h>

#include <string>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace sluice {

void check_machine_memory(std::int64_t count, std::int64_t bytes_each, const char* option) {
  const std::int64_t machine = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  const std::int64_t limit = machine / 4 * 3;
  if (bytes_each == 0 || count <= limit / bytes_each) return;
  throw ConfigError(std::string(option) + ": the benchmark would need " +
                    format_count(static_cast<double>(count)) + " x " + format_bytes(bytes_each) +
                    ", more than three quarters of this machine's " + format_bytes(machine) +
                    "; ask for less");
}

}  // namespace sluice
