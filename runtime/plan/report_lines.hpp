// Lines of a plan's texts. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace sluice {

inline constexpr int kReportWidth = 80;

// As snprintf, at most 255 characters.
[[nodiscard]] [[gnu::format(printf, 1, 2)]] std::string line(const char* format, ...);

// Wraps words into lines of at most kReportWidth. All lines but the first are indented by two more.
[[nodiscard]] std::string wrap(const std::string& words, std::size_t indent = 0);

// Wraps a comma-separated list. No line break falls inside an item.
[[nodiscard]] std::string wrap_list(const std::vector<std::string>& things, std::size_t indent);

}  // namespace sluice
