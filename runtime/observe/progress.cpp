#include "runtime/observe/progress.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/bytes.hpp"
#include "runtime/observe/terminal.hpp"

namespace sluice {
namespace {

std::string number(const char* format, double value) {
  std::array<char, 400> text{};  // "%.3f" of the largest double has 313 characters
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string step_time(double ms) {
  if (ms < 9.95) return number("%.1f ms", ms);
  if (ms < 9999.5) return number("%.0f ms", ms);
  return number("%.1f s", ms / 1000);
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
  return number(unit == 0 || value >= 99.95 ? "%.0f" : "%.1f", value) + kNames[unit];
}

// format_count is for counts; a rate may be anything.
std::string rate(double per_second) {
  return std::isfinite(per_second) && per_second >= 0 ? format_count(per_second) : "?";
}

}  // namespace

std::string format_progress(const ProgressState& state) {
  std::string line = " step " + std::to_string(state.step) + "/" + std::to_string(state.steps);
  line += " | loss " + number("%.3f", state.loss);
  line += " | grad norm " + number("%.2f", state.grad_norm);
  if (state.skipped) line += " | skipped";
  line += " | lr " + number("%.1e", state.lr);
  line += " | " + step_time(state.step_ms);
  line += " | " + rate(state.tokens_per_s) + " tok/s";
  if (state.mfu > 0) line += " | " + number("%.0f %% of measured rate", state.mfu * 100);
  if (state.mfu_of_card > 0) line += number(", %.0f %% of card", state.mfu_of_card * 100);
  if (state.device_bytes > 0) line += " | device " + short_bytes(state.device_bytes);
  if (state.eta_seconds >= 0) line += " | eta " + format_duration(state.eta_seconds);
  return line;
}

void EtaEstimator::add(double step_ms) {
  ++count_;
  mean_ms_ += (step_ms - mean_ms_) * std::max(kNewest, 1.0 / static_cast<double>(count_));
}

double EtaEstimator::seconds(std::int64_t steps_left) const {
  if (count_ == 0) return -1;
  return mean_ms_ * static_cast<double>(std::max<std::int64_t>(steps_left, 0)) / 1000;
}

void ProgressPrinter::update(const ProgressState& state) {
  const std::int64_t every = std::max<std::int64_t>(options_.log_every, 1);
  const bool stays = first_ || state.step % every == 0 || state.step >= state.steps;
  first_ = false;
  if (!stays && !options_.interactive) return;
  std::string line = format_progress(state);
  if (stays) {
    line += "\n";
  } else if (options_.columns > 1) {
    // The last column stays free: some terminals wrap when it is filled.
    line.resize(std::min(line.size(), static_cast<std::size_t>(options_.columns - 1)));
  }
  if (options_.interactive) line.insert(0, kClearLine);
  std::fwrite(line.data(), 1, line.size(), options_.out);
  std::fflush(options_.out);
  transient_ = !stays;
}

void ProgressPrinter::clear() {
  if (!transient_) return;
  std::fwrite(kClearLine.data(), 1, kClearLine.size(), options_.out);
  std::fflush(options_.out);
  transient_ = false;
}

}  // namespace sluice
