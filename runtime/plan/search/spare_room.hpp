// What a plan leaves free, as shares of the optimizer's states, in hundredths. Pure.
#pragma once

namespace sluice {

struct RunPlan;

// offload.device_fraction beside the plan's own: more of the states off the device that the device
// has room for. 0: the placement keeps them together, or the device's memory is not known.
[[nodiscard]] double fitting_on_device(const RunPlan& plan);
// offload.host_fraction in place of the plan's own: the states on NVMe that the host has room for.
// 0: none are there, an image wants all of them there, or the host's memory is not known.
[[nodiscard]] double fitting_on_host(const RunPlan& plan);

}  // namespace sluice
