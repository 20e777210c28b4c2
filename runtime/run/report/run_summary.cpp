#include "runtime/run/report/run_summary.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "runtime/observe/best_validation.hpp"
#include "runtime/observe/terminal.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kBetweenSamples{10};

std::string number(const char* format, double value) {
  char digits[64];
  std::snprintf(digits, sizeof digits, format, value);
  return digits;
}

std::string row(std::string name, const std::string& text) {
  name.resize(12, ' ');
  return " " + name + text + "\n";
}

std::string joules_text(double joules) {
  if (joules < 1000) return number("%.0f J", joules);
  if (joules < 3.6e6) return number("%.1f kJ", joules / 1000);
  return number("%.2f kWh", joules / 3.6e6);
}

std::string validation_text(const ValidationLosses& losses) {
  const auto at = [](const ValidationLoss& loss) {
    return number("%.4f", loss.loss) + " (step " + std::to_string(loss.step) + ")";
  };
  const std::string of_all = losses.count > 1 ? " of " + std::to_string(losses.count) : "";
  if (losses.best.step == losses.last.step) {
    return at(losses.last) + (of_all.empty() ? "" : ", the best" + of_all);
  }
  return at(losses.last) + ", best" + of_all + ": " + at(losses.best);
}

// A name that ends in a dot and digits was moved aside.
bool is_moved(const std::string& name) {
  const std::size_t dot = name.find_last_not_of("0123456789");
  return dot != std::string::npos && dot + 1 < name.size() && name[dot] == '.';
}

// N of "rank-N.log"; nullopt of another name.
std::optional<int> rank_of_log(std::string_view name) {
  constexpr std::string_view kBegin = "rank-", kEnd = ".log";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return std::nullopt;
  name.remove_prefix(kBegin.size());
  name.remove_suffix(kEnd.size());
  int rank = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  return error == std::errc() ? std::optional(rank) : std::nullopt;
}

}  // namespace

std::string files_of_run(const std::string& output_dir, int world) {
  std::vector<std::string> names;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(output_dir, failed)) {
    std::string name = entry.path().filename().string();
    const bool hidden =
        name.starts_with('.') || name.ends_with(".lock") || name.ends_with(".error.json");
    if (hidden || is_moved(name) || name == "save-now") continue;
    if (rank_of_log(name).value_or(0) >= world) continue;
    if (entry.is_directory(failed)) name += "/";
    names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  std::string text;
  std::size_t logs = 0;
  for (const std::string& name : names) {
    if (rank_of_log(name) && ++logs > 1) continue;
    text += (text.empty() ? "" : " ") + name;
  }
  if (logs < 2) return text;
  return text + " (and " + counted(static_cast<std::int64_t>(logs - 1), "more rank log") + ")";
}

void RunSummary::add(const StepRecord& record) {
  const double seconds = record.step_ms / 1000;
  ++steps_;
  skipped_ += record.skipped ? 1 : 0;
  step_s_ += seconds;
  tokens_ += record.tokens_per_s * seconds;
  mfu_s_ += record.mfu * seconds;
  card_s_ += record.mfu_of_card.value_or(0) * seconds;
  save_s_ += record.checkpoint_ms.value_or(0) / 1000;
  last_ = record;
  if (const Clock::time_point now = Clock::now(); now - sampled_ >= kBetweenSamples) {
    energy_.sample();
    sampled_ = now;
  }
}

std::string RunSummary::time_text() const {
  const std::chrono::duration<double> all = Clock::now() - began_;
  std::string text = format_duration(all.count()) + ", steps " + format_duration(step_s_);
  if (evaluation_s_ > 0) text += ", validation " + format_duration(evaluation_s_);
  if (save_s_ > 0) text += ", saves " + format_duration(save_s_);
  return text;
}

std::string RunSummary::speed_text() const {
  std::string text = format_count(tokens_ / step_s_) + " tok/s";
  if (mfu_s_ > 0) text += number(", %.0f %% of measured rate", mfu_s_ / step_s_ * 100);
  if (card_s_ > 0) text += number(", %.0f %% of card", card_s_ / step_s_ * 100);
  return text;
}

std::string RunSummary::energy_text() {
  energy_.sample();
  std::string text;
  if (const auto cpu = energy_.cpu_joules()) text += joules_text(*cpu) + " of this host's CPUs";
  if (const auto gpu = energy_.gpu_joules()) {
    text += (text.empty() ? "" : ", ") + joules_text(*gpu) + " of its GPUs";
  }
  return text;
}

std::string RunSummary::text(const SummaryFacts& facts) {
  if (!last_) return {};
  TerminalInfo terminal;
  terminal.colors = facts.heading;
  std::string text = colored(Color::kHeading, "summary", terminal) + "\n";
  std::string steps = std::to_string(last_->step) + " of " + std::to_string(facts.steps);
  if (steps_ < last_->step)
    steps += ", " + std::to_string(steps_) + " since the start of this process";
  if (skipped_ > 0) steps += ", " + std::to_string(skipped_) + " skipped";
  text += row("steps", steps);
  text += row("tokens", format_count(static_cast<double>(last_->tokens)));
  text += row("loss", number("%.4f at the last step", last_->loss));
  if (const auto losses = validation_losses(facts.output_dir + "/metrics.jsonl")) {
    text += row("validation", validation_text(*losses));
  }
  text += row("time", time_text());
  text += row("speed", speed_text());
  if (const std::string energy = energy_text(); !energy.empty()) text += row("energy", energy);
  text += row("written to", facts.output_dir + ": " + files_of_run(facts.output_dir, facts.world));
  if (!facts.checkpoint.empty()) text += row("checkpoint", facts.checkpoint);
  return text;
}

}  // namespace sluice
