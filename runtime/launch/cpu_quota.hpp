// How much processor time the control group of this process may use. A container with --cpus=2 sees
// all cores of the machine in its cpuset, but running more than two threads only gets it throttled.
#pragma once

#include <optional>
#include <string_view>

namespace sluice {

// Cores' worth of time, the smallest over the group and its parents; nullopt where there is no
// limit (or none that can be read). cgroup v2 and v1.
[[nodiscard]] std::optional<double> cpu_quota();

// The text of cpu.max: "200000 100000" is 2.0, "max 100000" no limit. Pure.
[[nodiscard]] std::optional<double> parse_cpu_max(std::string_view text);

}  // namespace sluice
