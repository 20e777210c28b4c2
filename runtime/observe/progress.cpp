#include "runtime/observe/progress.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "base/log_level.hpp"
#include "runtime/observe/progress_bar.hpp"
#include "runtime/observe/terminal.hpp"

namespace sluice {
std::string format_progress(const ProgressState& state) {
  std::string line = " step " + std::to_string(state.step) + "/" + std::to_string(state.steps);
  line += " | loss " + number_text("%.3f", state.loss);
  line += " | grad norm " + number_text("%.2f", state.grad_norm);
  if (state.skipped) line += " | skipped";
  line += " | lr " + number_text("%.1e", state.lr);
  line += " | " + time_text(state.step_ms);
  line += " | " + rate_text(state.tokens_per_s) + " tok/s";
  if (state.mfu > 0) line += " | " + number_text("%.0f %% of measured rate", state.mfu * 100);
  if (state.mfu_of_card > 0) line += number_text(", %.0f %% of card", state.mfu_of_card * 100);
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

ProgressPrinter::ProgressPrinter(std::int64_t log_every, StatusLine& status, std::FILE* out)
    : log_every_(std::max<std::int64_t>(log_every, 1)),
      status_(status),
      out_(out),
      utf8_(terminal_info(::fileno(out)).utf8) {}

bool ProgressPrinter::keeps(std::int64_t step, std::int64_t steps) const {
  return first_ || step % log_every_ == 0 || step >= steps;
}

void ProgressPrinter::print(const std::string& line) {
  if (!log_shows(LogLevel::kInfo)) return;
  status_.above([&] {
    std::fputs((line + "\n").c_str(), out_);
    std::fflush(out_);
  });
}

void ProgressPrinter::update(const ProgressState& state) {
  if (!log_shows(LogLevel::kInfo)) return;
  const bool last = state.step >= state.steps;
  const bool stays = keeps(state.step, state.steps);
  first_ = false;
  if (last) clear();
  if (stays) print(format_progress(state));
  if (last || !status_.rewrites()) return;
  status_.show(format_progress_bar(state, {.columns = status_.columns(), .utf8 = utf8_}));
}

}  // namespace sluice
