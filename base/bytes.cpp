#include "base/bytes.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

namespace sluice {
namespace {

struct Unit {
  std::string_view suffix;
  double factor;
};

// "1_000.5e3 GiB" -> number and suffix. nullopt where there is no number.
std::optional<std::pair<double, std::string_view>> split_number(std::string_view text,
                                                                std::string& digits) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  digits.clear();
  std::size_t used = 0;
  for (; used < text.size(); ++used) {
    const char c = text[used];
    const bool exponent = (c == 'e' || c == 'E') && used + 1 < text.size() && !digits.empty() &&
                          (text[used + 1] == '+' || text[used + 1] == '-' ||
                           (text[used + 1] >= '0' && text[used + 1] <= '9'));
    const bool sign = (c == '+' || c == '-') && !digits.empty() && digits.back() == 'e';
    if (c == '_') continue;
    if ((c >= '0' && c <= '9') || c == '.' || sign) {
      digits += c;
    } else if (exponent) {
      digits += 'e';
    } else {
      break;
    }
  }
  double number = 0;
  std::string plain;
  for (const char c : digits) {
    if (c != '+') plain += c;  // from_chars takes no plus
  }
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), number);
  if (error != std::errc() || end != plain.data() + plain.size()) return std::nullopt;
  std::string_view suffix = text.substr(used);
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  return std::pair{number, suffix};
}

template <std::size_t N>
std::optional<std::int64_t> parse_with(std::string_view text, const std::array<Unit, N>& units) {
  std::string digits;
  const auto split = split_number(text, digits);
  if (!split) return std::nullopt;
  for (const Unit& unit : units) {
    if (unit.suffix != split->second) continue;
    const double value = split->first * unit.factor;
    if (!(value >= 0) || value >= 9.2e18 || value != std::floor(value)) return std::nullopt;
    return static_cast<std::int64_t>(value);
  }
  return std::nullopt;
}

constexpr std::array<Unit, 15> kByteUnits{{{"", 1},
                                           {"B", 1},
                                           {"kB", 1e3},
                                           {"KB", 1e3},
                                           {"MB", 1e6},
                                           {"GB", 1e9},
                                           {"TB", 1e12},
                                           {"KiB", 1024.0},
                                           {"MiB", 1048576.0},
                                           {"GiB", 1073741824.0},
                                           {"TiB", 1099511627776.0},
                                           {"k", 1e3},
                                           {"K", 1e3},
                                           {"M", 1e6},
                                           {"G", 1e9}}};
constexpr std::array<Unit, 7> kCountUnits{
    {{"", 1}, {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"G", 1e9}, {"T", 1e12}}};

std::string three_digits(double value) {
  std::array<char, 32> text{};
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

}  // namespace

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  return parse_with(text, kByteUnits);
}

std::optional<std::int64_t> parse_count(std::string_view text) {
  return parse_with(text, kCountUnits);
}

std::string format_bytes(std::int64_t bytes) {
  constexpr std::array<std::string_view, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  return three_digits(value) + " " + std::string(kNames[unit]);
}

std::string format_count(double count) {
  constexpr std::array<std::string_view, 5> kNames{"", "k", "M", "B", "T"};
  std::size_t unit = 0;
  while (count >= 999.5 && unit + 1 < kNames.size()) {
    count /= 1000;
    ++unit;
  }
  if (unit == 0 && count == std::floor(count)) return std::to_string(static_cast<int>(count));
  return three_digits(count) + std::string(kNames[unit]);
}

std::string format_duration(double seconds) {
  const std::int64_t total = std::llround(seconds);
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld",
                static_cast<long long>(total / 3600), static_cast<long long>(total / 60 % 60),
                static_cast<long long>(total % 60));
  return text.data();
}

}  // namespace sluice
