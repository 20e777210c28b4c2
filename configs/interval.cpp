#include "configs/interval.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

#include "base/bytes.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kMaxSteps = 2147483647;
constexpr double kMaxSeconds = 1e7;

struct Unit {
  std::string_view suffix;
  double seconds;
};
constexpr std::array<Unit, 4> kUnits{{{"min", 60}, {"s", 1}, {"m", 60}, {"h", 3600}}};

std::optional<double> read_decimal(std::string_view text) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> read_count(std::string_view text) {
  const auto steps = parse_count(text);
  if (!steps || *steps < 0 || *steps > kMaxSteps) return std::nullopt;
  return *steps;
}

std::string write_decimal(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size() - 1, value);
  return {text.data(), error == std::errc() ? end : text.data()};
}

// "5%": 0.05, at most 1.
std::optional<double> read_share(std::string_view text) {
  const auto percent = read_decimal(text.substr(0, text.size() - 1));
  if (!percent || *percent > 100) return std::nullopt;
  return *percent / 100;
}

// A share is read as a percentage: that of the nearest such number is its text.
std::string write_share(double share) {
  constexpr double kDigits = 1e9;
  const double rounded = std::round(share * 100 * kDigits) / kDigits;
  return write_decimal(rounded / 100 == share ? rounded : share * 100) + "%";
}

}  // namespace

std::optional<SaveInterval> read_interval(std::string_view text) {
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.suffix)) continue;
    const auto number = read_decimal(text.substr(0, text.size() - unit.suffix.size()));
    const double seconds = number.value_or(-1) * unit.seconds;
    if (!(seconds > 0) || seconds > kMaxSeconds) return std::nullopt;
    return SaveInterval{.steps = 0, .seconds = seconds};
  }
  const auto steps = read_count(text);
  if (!steps) return std::nullopt;
  return SaveInterval{.steps = *steps, .seconds = 0};
}

std::string write_interval(const SaveInterval& interval) {
  if (interval.seconds == 0) return std::to_string(interval.steps);
  return write_decimal(interval.seconds) + "s";
}

std::optional<StepCount> read_steps(std::string_view text) {
  if (!text.ends_with('%')) {
    const auto steps = read_count(text);
    return steps ? std::optional<StepCount>(*steps) : std::nullopt;
  }
  const auto share = read_share(text);
  if (!share || !(*share > 0)) return std::nullopt;
  return StepCount::share_of_all(*share);
}

std::string write_steps(const StepCount& count) {
  return count.share == 0 ? std::to_string(count.steps) : write_share(count.share);
}

std::optional<RateBound> read_rate(std::string_view text) {
  if (text.ends_with('%')) {
    const auto share = read_share(text);
    return share ? std::optional<RateBound>(RateBound::share_of_lr(*share)) : std::nullopt;
  }
  const auto rate = read_decimal(text);
  return rate ? std::optional<RateBound>(*rate) : std::nullopt;
}

std::string write_rate(const RateBound& rate) {
  return rate.share == 0 ? write_decimal(rate.rate) : write_share(rate.share);
}

}  // namespace sluice
