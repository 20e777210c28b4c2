#include "runtime/observe/progress_bar.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

#include "base/bytes.hpp"
#include "runtime/observe/terminal.hpp"

namespace sluice {

std::string number_text(const char* format, double value) {
  std::array<char, 400> text{};  // "%.3f" of the largest double has 313 characters
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string time_text(double ms) {
  if (ms < 9.95) return number_text("%.1f ms", ms);
  if (ms < 9999.5) return number_text("%.0f ms", ms);
  return number_text("%.1f s", ms / 1000);
}

// 1.3 GiB, 41.0 MiB, 412 MiB: a digit less than format_bytes, for a number that flickers.
std::string short_bytes(std::int64_t bytes) {
  constexpr std::array<const char*, 5> kNames{" B", " KiB", " MiB", " GiB", " TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  return number_text(unit == 0 || value >= 99.95 ? "%.0f" : "%.1f", value) + kNames[unit];
}

// format_count is for counts; a rate may be anything.
std::string rate_text(double per_second) {
  return std::isfinite(per_second) && per_second >= 0 ? format_count(per_second) : "?";
}

namespace {

constexpr int kShortestBar = 10, kLongestBar = 40;

struct Part {
  int importance = 0;  // the lowest is the last to go; parts of one importance go together
  std::string text;
  bool joined = false;  // to the part before, without a separator
};

double share_of(const ProgressState& state) {
  if (state.steps <= 0) return 0;
  return std::clamp(static_cast<double>(state.step) / static_cast<double>(state.steps), 0.0, 1.0);
}

std::string trend_text(const LossTrend& trend, bool utf8) {
  if (!trend.is_clear()) return utf8 ? " \u2192" : " (=)";
  const std::string size = number_text("%.3f", std::abs(trend.change));
  if (utf8) return (trend.change < 0 ? " \u2193" : " \u2191") + size;
  return (trend.change < 0 ? " (-" : " (+") + size + ")";
}

// In the order of the line, after the share and the bar.
std::vector<Part> parts_of(const ProgressState& state, bool utf8) {
  std::vector<Part> parts;
  const auto add = [&](int importance, std::string text, bool joined = false) {
    parts.push_back({importance, std::move(text), joined});
  };
  add(0, number_text("%3.0f %%", std::floor(share_of(state) * 100)));
  add(6, " " + std::to_string(state.step) + "/" + std::to_string(state.steps), true);
  if (state.eta_seconds >= 0) add(2, "eta " + format_duration(state.eta_seconds));
  add(4, rate_text(state.tokens_per_s) + " tok/s");
  add(1, "loss " + number_text("%.3f", state.loss));
  if (state.trend) add(5, trend_text(*state.trend, utf8), true);
  if (state.skipped) add(1, " skipped", true);
  if (state.device_bytes > 0) add(7, "device " + short_bytes(state.device_bytes));
  add(8, time_text(state.step_ms));
  if (state.mfu > 0) add(9, number_text("%.0f %% of measured rate", state.mfu * 100));
  add(10, "grad norm " + number_text("%.2f", state.grad_norm));
  add(11, "lr " + number_text("%.1e", state.lr));
  return parts;
}
constexpr int kBarImportance = 3, kLeastImportance = 11;

constexpr std::string_view kSeparator = " | ";

int width_of(const std::vector<Part>& parts, int up_to) {
  int width = 0;
  for (const Part& part : parts) {
    if (part.importance > up_to) continue;
    if (width > 0 && !part.joined) width += static_cast<int>(kSeparator.size());
    width += columns_of(part.text);
  }
  return width;
}

}  // namespace

std::string bar_text(double share, int width, bool utf8) {
  const int filled = static_cast<int>(std::floor(share * width));
  std::string bar;
  for (int i = 0; i < width; ++i) {
    if (utf8) {
      bar += i < filled ? "\u2588" : "\u2591";
    } else {
      bar += i < filled ? '#' : '-';
    }
  }
  return bar;
}

std::string format_progress_bar(const ProgressState& state, const BarOptions& options) {
  const std::vector<Part> parts = parts_of(state, options.utf8);
  const int room = options.columns > 1 ? options.columns - 1 : 120;
  const auto with_bar = [&](int up_to) {
    return width_of(parts, up_to) + (up_to >= kBarImportance ? kShortestBar + 1 : 0);
  };
  int up_to = kLeastImportance;
  while (up_to > 0 && with_bar(up_to) > room) --up_to;
  std::string line;
  for (const Part& part : parts) {
    if (part.importance > up_to) continue;
    if (!line.empty() && !part.joined) line += kSeparator;
    line += part.text;
    if (part.importance == 0 && up_to >= kBarImportance) {
      const int width = std::min(kLongestBar, kShortestBar + room - with_bar(up_to));
      line += " " + bar_text(share_of(state), width, options.utf8);
    }
  }
  return line;
}

}  // namespace sluice
