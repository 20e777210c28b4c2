// Processor time that the control group of this process may use. A container with --cpus=2 sees all
// cores in its cpuset, but the kernel throttles it above two threads.
#pragma once

#include <optional>
#include <string_view>

namespace sluice {

// The limit in cores: the smallest over the group and its parents. nullopt without a readable
// limit. cgroup v2 and v1.
[[nodiscard]] std::optional<double> cpu_quota();

// Parses cpu.max: "200000 100000" is 2.0, "max 100000" no limit. Pure.
[[nodiscard]] std::optional<double> parse_cpu_max(std::string_view text);

}  // namespace sluice
