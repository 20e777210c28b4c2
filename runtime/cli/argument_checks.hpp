// Checks of numeric arguments. Only for files that include CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>

namespace sluice {

// Accepts decimal digits alone, within bounds. CLI11's own conversion clamps a number that is too
// large, and reads -1 as the largest number.
inline CLI::Validator whole_number(std::uint64_t least,
                                   std::uint64_t most = ~std::uint64_t{0} >> 1U) {
  const auto complaint = [least, most](const std::string& text) -> std::string {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end && value >= least && value <= most) return "";
    return "found '" + text + "', expected a whole number from " + std::to_string(least) +
           (error == std::errc::result_out_of_range || value > most ? " to " + std::to_string(most)
                                                                    : " on");
  };
  return CLI::Validator([complaint](std::string& text) { return complaint(text); }, "");
}

// "600TB" as bytes, above 0. CLI11's own conversion reads -5 as 2^64 - 5.
inline CLI::Validator size_in_bytes(bool kilo_is_1000, const std::string& example) {
  return CLI::Validator(
      [kilo_is_1000, example](std::string& text) -> std::string {
        std::string complaint = "found '" + text + "', expected a size above 0 such as " + example;
        const bool is_number = !text.empty() && text[0] >= '0' && text[0] <= '9';
        try {
          const bool is_size = is_number && CLI::AsSizeValue(kilo_is_1000)(text).empty();
          return is_size && text != "0" ? "" : complaint;
        } catch (const CLI::ValidationError&) {  // 1.5TB
          return complaint;
        }
      },
      "SIZE");
}

}  // namespace sluice
