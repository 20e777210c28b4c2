// The PCI Express link of a device, as the system shows it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// What is not shown is empty: containers may hide it, and not every GPU is on such a link.
struct PciLink {
  std::optional<double> gt_per_s, most_gt_per_s;  // transfers a lane, 1e9/s: 32 is generation 5
  std::optional<int> lanes, most_lanes;
  std::optional<int> numa_node;
};

// `devices`: /sys/bus/pci/devices; `bus_id`: as CUDA writes it, "0000:1B:00.0". Nothing throws.
[[nodiscard]] PciLink read_pci_link(const std::string& devices, const std::string& bus_id);

// "32.0 GT/s PCIe" is 32. Pure.
[[nodiscard]] std::optional<double> parse_link_speed(std::string_view text);
// Bytes a second one way that a link carries after its line code, before packets' headers; empty
// where it is not known. Pure.
[[nodiscard]] std::optional<double> link_bps(std::optional<double> gt_per_s,
                                             std::optional<int> lanes);
// "PCIe 5.0 x16"; "GT/s" instead of a generation that is none. Empty where it is not known. Pure.
[[nodiscard]] std::string name_of_link(std::optional<double> gt_per_s, std::optional<int> lanes);

}  // namespace sluice
