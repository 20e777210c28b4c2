#include "runtime/launch/cpu_quota.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace sluice {
namespace {

constexpr const char* kRoot = "/sys/fs/cgroup";

std::string contents(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<double> smaller(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

std::string limit_text(const std::string& folder, bool v2) {
  if (v2) return contents(folder + "/cpu.max");
  return contents(folder + "/cpu.cfs_quota_us") + " " + contents(folder + "/cpu.cfs_period_us");
}

// From the group up to the root of the hierarchy. Inside a container the path is that of the host
// and need not exist; the container's own limit is at the root then.
std::optional<double> smallest_upwards(const std::string& root, std::string group, bool v2) {
  std::optional<double> quota;
  while (true) {
    quota = smaller(quota, parse_cpu_max(limit_text(root + group, v2)));
    const std::size_t slash = group.rfind('/');
    if (group.empty() || slash == std::string::npos) return quota;
    group.erase(slash);
  }
}

}  // namespace

std::optional<double> parse_cpu_max(std::string_view text) {
  const auto next_number = [&text]() -> std::optional<double> {
    const std::size_t begin = text.find_first_not_of(" \t\n");
    if (begin == std::string_view::npos) return std::nullopt;
    text.remove_prefix(begin);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
  };
  const std::optional<double> quota = next_number();
  const std::optional<double> period = next_number();
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;  // v1: -1 is no limit
  return *quota / *period;
}

std::optional<double> cpu_quota() {
  std::optional<double> quota;
  std::ifstream groups("/proc/self/cgroup");
  std::string line;  // "0::/user.slice" (v2) or "4:cpu,cpuacct:/docker/1f" (v1)
  while (std::getline(groups, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = ",";
    controllers.append(line, first + 1, second - first - 1).append(",");
    std::string group = line.substr(second + 1);
    if (group == "/") group.clear();
    if (controllers == ",,") {
      quota = smaller(quota, smallest_upwards(kRoot, group, true));
    } else if (controllers.find(",cpu,") != std::string::npos) {
      quota = smaller(quota, smallest_upwards(std::string(kRoot) + "/cpu", group, false));
    }
  }
  return quota;
}

}  // namespace sluice
