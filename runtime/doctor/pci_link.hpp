// The PCI Express link of a device, from sysfs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// Hidden facts are empty: containers may hide them, and not every GPU has such a link.
struct PciLink {
  std::optional<double> gt_per_s, most_gt_per_s;  // transfers a lane, 1e9/s: 32 is generation 5
  std::optional<int> lanes, most_lanes;
  std::optional<int> numa_node;
};

// `devices`: /sys/bus/pci/devices; `bus_id`: as CUDA writes it, "0000:1B:00.0". Never throws.
[[nodiscard]] PciLink read_pci_link(const std::string& devices, const std::string& bus_id);

// "32.0 GT/s PCIe" is 32. Pure.
[[nodiscard]] std::optional<double> parse_link_speed(std::string_view text);
// Bytes a second and direction after the line code, before packet headers; empty if unknown. Pure.
[[nodiscard]] std::optional<double> link_bps(std::optional<double> gt_per_s,
                                             std::optional<int> lanes);
// "PCIe 5.0 x16", or with "GT/s" if the rate is no known generation. Empty if unknown. Pure.
[[nodiscard]] std::string name_of_link(std::optional<double> gt_per_s, std::optional<int> lanes);

}  // namespace sluice
