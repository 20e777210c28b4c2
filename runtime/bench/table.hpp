// Measurements as text: aligned columns, and numbers with three digits and their unit. Pure;
// thread-safe.
#pragma once

#include <string>
#include <vector>

namespace sluice {

inline constexpr std::size_t kTableColumns = 80;

// One line for each row: the first cell left-aligned, the others right-aligned. REQUIRES: every row
// has as many cells as the first.
[[nodiscard]] std::string format_table(const std::vector<std::vector<std::string>>& rows);

// `text` in lines of at most kTableColumns, broken at spaces; ends with a line break.
[[nodiscard]] std::string wrap(const std::string& text);

[[nodiscard]] std::string format_seconds(double seconds);        // "1.23 ms", "45.6 us", "2.10 s"
[[nodiscard]] std::string format_byte_rate(double bytes_per_s);  // "12.3 GB/s"
[[nodiscard]] std::string format_flop_rate(double flops_per_s);  // "123 GFLOP/s"
[[nodiscard]] std::string format_percent(double share);          // 0.123 is "12 %"

}  // namespace sluice
