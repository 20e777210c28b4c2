#include "runtime/doctor/pci_link.hpp"

#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <fstream>

namespace sluice {
namespace {

// Transfers a lane of generations 1 to 6.
constexpr std::array<double, 6> kGenerations{2.5, 5, 8, 16, 32, 64};
// Bits that carry data: 8 of 10, from generation 3 on 128 of 130 (in 6 of flits, nearly the same).
constexpr double kOldCode = 0.8;
constexpr double kNewCode = 128.0 / 130;

std::optional<std::string> attribute(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// Below 0 is the system's word for "none".
std::optional<int> count_in(const std::string& path) {
  const std::optional<std::string> line = attribute(path);
  if (!line) return std::nullopt;
  int value = -1;
  const auto parsed = std::from_chars(line->data(), line->data() + line->size(), value);
  if (parsed.ec != std::errc() || value < 0) return std::nullopt;
  return value;
}

std::optional<double> speed_in(const std::string& path) {
  const std::optional<std::string> line = attribute(path);
  return line ? parse_link_speed(*line) : std::nullopt;
}

std::optional<int> lanes_in(const std::string& path) {
  const std::optional<int> lanes = count_in(path);
  return lanes && *lanes > 0 ? lanes : std::nullopt;
}

}  // namespace

std::optional<double> parse_link_speed(std::string_view text) {
  double speed = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), speed);
  if (parsed.ec != std::errc() || !(speed > 0) || speed > 1e3) return std::nullopt;
  return speed;
}

PciLink read_pci_link(const std::string& devices, const std::string& bus_id) {
  std::string name;
  for (const char c : bus_id) {
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (name.empty() || name.find('/') != std::string::npos) return {};
  const std::string device = devices + "/" + name;
  PciLink link;
  link.gt_per_s = speed_in(device + "/current_link_speed");
  link.most_gt_per_s = speed_in(device + "/max_link_speed");
  link.lanes = lanes_in(device + "/current_link_width");
  link.most_lanes = lanes_in(device + "/max_link_width");
  link.numa_node = count_in(device + "/numa_node");
  return link;
}

std::optional<double> link_bps(std::optional<double> gt_per_s, std::optional<int> lanes) {
  if (!gt_per_s || !lanes) return std::nullopt;
  const double code = *gt_per_s < kGenerations[2] ? kOldCode : kNewCode;
  return *gt_per_s * 1e9 * code * *lanes / 8;
}

std::string name_of_link(std::optional<double> gt_per_s, std::optional<int> lanes) {
  if (!gt_per_s || !lanes) return "";
  const std::string width = " x" + std::to_string(*lanes);
  for (std::size_t i = 0; i < kGenerations.size(); ++i) {
    if (kGenerations.at(i) == *gt_per_s) return "PCIe " + std::to_string(i + 1) + ".0" + width;
  }
  std::array<char, 32> speed{};
  std::snprintf(speed.data(), speed.size(), "%g GT/s", *gt_per_s);
  return speed.data() + width;
}

}  // namespace sluice
