// Checks of numbers among the arguments. Only for *_arguments.cpp: it brings in CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>

namespace sluice {

// Decimal digits alone, within bounds: the library's own conversion takes the nearest number it has
// for one that is too large, and the largest for -1.
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

}  // namespace sluice
