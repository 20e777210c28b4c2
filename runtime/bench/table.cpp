#include "runtime/bench/table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.hpp"

namespace sluice {
namespace {

constexpr std::size_t kGap = 2;  // columns between two cells

std::string three_digits(double value) {
  char text[32];
  const double size = std::abs(value);
  std::snprintf(text, sizeof text, size < 9.995 ? "%.2f" : size < 99.95 ? "%.1f" : "%.0f", value);
  return text;
}

// From the largest unit down: a value is shown in the first unit it fills.
struct Unit {
  double size;
  const char* name;
};

template <std::size_t N>
std::string in_units(double value, const Unit (&units)[N]) {
  for (const Unit& unit : units) {
    if (std::abs(value) >= unit.size) return three_digits(value / unit.size) + " " + unit.name;
  }
  return three_digits(value / units[N - 1].size) + " " + units[N - 1].name;
}

}  // namespace

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    check(row.size() == rows.front().size(), "the rows of a table are of one length");
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      text += i == 0 ? row[i] + space : std::string(kGap, ' ') + space + row[i];
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

std::string wrap(const std::string& text) {
  std::string result;
  std::size_t begin = 0;
  while (text.size() - begin > kTableColumns) {
    std::size_t end = text.rfind(' ', begin + kTableColumns);
    if (end == std::string::npos || end <= begin) end = text.find(' ', begin + kTableColumns);
    if (end == std::string::npos) break;
    result += text.substr(begin, end - begin) + '\n';
    begin = end + 1;
  }
  return result + text.substr(begin) + '\n';
}

std::string format_seconds(double seconds) {
  if (seconds == 0) return "0 s";
  return in_units(seconds, {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}});
}

std::string format_byte_rate(double bytes_per_s) {
  return in_units(bytes_per_s, {{1e12, "TB/s"}, {1e9, "GB/s"}, {1e6, "MB/s"}});
}

std::string format_flop_rate(double flops_per_s) {
  return in_units(flops_per_s, {{1e12, "TFLOP/s"}, {1e9, "GFLOP/s"}, {1e6, "MFLOP/s"}});
}

std::string format_percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", 100 * share);
  return text;
}

}  // namespace sluice
