#include "runtime/run/memory_left.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace sluice {
namespace {

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

std::optional<std::int64_t> machine_bytes(const std::string& wanted) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::int64_t kib = 0;
  for (std::string line; file >> name >> kib; std::getline(file, line)) {
    if (name == wanted) return kib * 1024;
  }
  return std::nullopt;
}

std::optional<std::int64_t> number_in(const char* path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;  // "max" is no number: no limit
}

// Inactive file pages count as used, but the kernel frees them before an allocation fails.
std::int64_t group_cache_bytes() {
  std::ifstream file("/sys/fs/cgroup/memory.stat");
  std::string name;
  std::int64_t bytes = 0;
  while (file >> name >> bytes) {
    if (name == "inactive_file") return bytes;
  }
  return 0;
}

// Free bytes of a container whose control group is visible as the root group.
std::int64_t group_bytes() {
  const auto limit = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (!limit || !used) return kUnknown;
  return std::max<std::int64_t>(0, *limit - *used + group_cache_bytes());
}

}  // namespace

std::int64_t memory_left_bytes() {
  return std::min(machine_bytes("MemAvailable:").value_or(kUnknown), group_bytes());
}

std::int64_t swap_left_bytes() { return machine_bytes("SwapFree:").value_or(0); }

}  // namespace sluice
