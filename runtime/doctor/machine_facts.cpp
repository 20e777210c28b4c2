#include "runtime/doctor/machine_facts.hpp"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/bytes.hpp"
#include "kernels/cpu/thread_waiting.hpp"
#include "offload/topology.hpp"
#include "runtime/launch/cpu_quota.hpp"

namespace sluice {
namespace {

std::string contents(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// The value of "key : value" or "key: value kB", without the blanks around it.
std::string value_of(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::optional<std::int64_t> memory_value(const std::string& meminfo, const char* key) {
  const std::string text = value_of(meminfo, key);
  std::int64_t kib = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), kib);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return kib * kKiB;
}

std::optional<double> leading_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  return value;
}

// Of the hexadecimal set of capabilities that are in effect.
bool has_ipc_lock(const std::string& text) {
  constexpr std::uint64_t kIpcLock = std::uint64_t{1} << 14;
  std::uint64_t set = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), set, 16);
  return error == std::errc() && (set & kIpcLock) != 0;
}

void read_memory(MachineFacts& facts) {
  const std::string meminfo = contents("/proc/meminfo");
  facts.memory_bytes = memory_value(meminfo, "MemTotal");
  facts.available_bytes = memory_value(meminfo, "MemAvailable");
  facts.swap_bytes = memory_value(meminfo, "SwapTotal");
  const auto swap_free = memory_value(meminfo, "SwapFree");
  if (facts.swap_bytes && swap_free) facts.swap_used_bytes = *facts.swap_bytes - *swap_free;
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    facts.memlock_unlimited = limit.rlim_cur == RLIM_INFINITY;
    if (!facts.memlock_unlimited) {
      facts.memlock_bytes = static_cast<std::int64_t>(limit.rlim_cur);
    }
  }
  facts.memlock_exempt = has_ipc_lock(value_of(contents("/proc/self/status"), "CapEff"));
  const std::string folder = "/sys/kernel/mm/transparent_hugepage/";
  facts.huge_pages = chosen_setting(contents(folder + "enabled"));
  facts.shared_huge_pages = chosen_setting(contents(folder + "shmem_enabled"));
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) {
    const auto block = static_cast<std::int64_t>(shm.f_frsize);
    facts.shm_bytes = static_cast<std::int64_t>(shm.f_blocks) * block;
    facts.shm_free_bytes = static_cast<std::int64_t>(shm.f_bavail) * block;
  }
}

void read_processor(MachineFacts& facts) {
  const std::string cpuinfo = contents("/proc/cpuinfo");
  facts.cpu_model = value_of(cpuinfo, "model name");
  if (const auto mhz = leading_number(value_of(cpuinfo, "cpu MHz")); mhz && *mhz > 0) {
    facts.clock_hz = *mhz * 1e6;
  }
  facts.clock_source =
      first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  facts.isa = detect_isa();
  facts.amx_reported = amx_reported();
  facts.amx_usable = probe_amx();
  facts.cpu_quota = cpu_quota();
  facts.load = leading_number(first_line("/proc/loadavg"));
  facts.spin_count = environment(kSpinVariable);
  facts.wait_policy = environment(kWaitPolicyVariable);
  for (int index = 0; index < 8; ++index) {
    const std::string text =
        first_line("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    facts.cache_bytes = std::max(facts.cache_bytes, parse_cache_size(text));
  }
}

void read_topology(MachineFacts& facts) {
  try {
    const Topology topology;
    facts.cores = topology.cores();
    facts.hardware_threads = topology.hardware_threads();
    for (const MemoryNode& node : topology.nodes()) {
      facts.nodes.push_back(
          {node.os_index, node.memory_bytes, static_cast<int>(node.cores.size())});
    }
  } catch (const std::exception&) {
    facts.nodes.clear();  // the map is not known; the cores stay 1
  }
}

// mountinfo writes blanks of a path as \040.
std::string unescape(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto octal = [&](std::size_t at) { return text[at] >= '0' && text[at] <= '7'; };
    if (text[i] == '\\' && i + 3 < text.size() && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      result += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                  (text[i + 3] - '0'));
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

bool holds(const std::string& point, std::string_view path) {
  if (point == "/") return path.starts_with('/');
  return path.starts_with(point) && (path.size() == point.size() || path[point.size()] == '/');
}

}  // namespace

std::string chosen_setting(std::string_view text) {
  const std::size_t open = text.find('[');
  const std::size_t close = text.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return "";
  return std::string(text.substr(open + 1, close - open - 1));
}

std::optional<Mount> mount_of(std::string_view mountinfo, std::string_view path) {
  std::optional<Mount> found;
  std::istringstream lines{std::string(mountinfo)};
  for (std::string line; std::getline(lines, line);) {
    // id parent major:minor root POINT options [more...] - TYPE DEVICE options
    std::istringstream fields(line);
    std::string skipped, point;
    fields >> skipped >> skipped >> skipped >> skipped >> point;
    while (fields >> skipped && skipped != "-") {
    }
    std::string type, device;
    if (!(fields >> type >> device)) continue;
    point = unescape(point);
    // Of two on one point the later one covers the earlier.
    if (!holds(point, path) || (found && point.size() < found->point.size())) continue;
    found = Mount{point, type, unescape(device)};
  }
  return found;
}

std::int64_t parse_cache_size(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value > kGiB) return 0;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  return unit == "K" ? value * kKiB : unit == "M" ? value * kMiB : unit.empty() ? value : 0;
}

MachineFacts read_machine_facts(int gpus) {
  MachineFacts facts;
  facts.gpus = gpus;
  read_processor(facts);
  read_memory(facts);
  read_topology(facts);
  return facts;
}

}  // namespace sluice
