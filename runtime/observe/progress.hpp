// The progress of a run. Each log_every-th step is a line:
//
// clang-format off
//    step 120/2000 | loss 3.412 | grad norm 0.87 | lr 2.9e-04 | 412 ms | 19.9k tok/s | 41 % of measured rate
//    | device 1.3 GiB | eta 0:13:02                                            (one line)
// clang-format on
//
// A terminal also has a line at its bottom that each step rewrites (progress_bar.hpp). Not
// thread-safe.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "runtime/observe/loss_trend.hpp"
#include "runtime/observe/status_line.hpp"

namespace sluice {

struct ProgressState {
  std::int64_t step = 0;
  std::int64_t steps = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double step_ms = 0;
  double tokens_per_s = 0;
  double mfu = 0;                    // of the measured rate, 0..1; 0: unknown, left out
  double mfu_of_card = 0;            // of the card's dense peak; 0: not a card that is known
  std::int64_t device_bytes = 0;     // peak on this rank; 0: left out
  double eta_seconds = -1;           // negative: unknown, left out
  bool skipped = false;              // adds "skipped" after the norm
  std::optional<LossTrend> trend{};  // only on the line that is rewritten
};

// Pure; without a line break.
[[nodiscard]] std::string format_progress(const ProgressState& state);

// Remaining time from a moving average of step times. The weight of a step is 1/n for the first
// ones and never less than kNewest, so the slow first step soon loses its influence.
class EtaEstimator {
 public:
  static constexpr double kNewest = 0.05;
  void add(double step_ms);
  [[nodiscard]] double seconds(std::int64_t steps_left) const;  // -1 before the first add

 private:
  double mean_ms_ = 0;
  std::int64_t count_ = 0;
};

class ProgressPrinter {
 public:
  // `out`: for the lines that stay. `status`: the bottom of the same terminal. Both are borrowed.
  ProgressPrinter(std::int64_t log_every, StatusLine& status, std::FILE* out = stdout);
  ~ProgressPrinter() { clear(); }
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;

  // Whether the line of this step stays: of the first, the last and every log_every-th step.
  [[nodiscard]] bool keeps(std::int64_t step, std::int64_t steps) const;
  // Prints nothing where the log shows no information (--quiet).
  void update(const ProgressState& state);
  // Prints a line that stays, above the one that is rewritten.
  void print(const std::string& line);
  // Removes the line that is rewritten.
  void clear() { status_.remove(); }

 private:
  const std::int64_t log_every_;
  StatusLine& status_;
  std::FILE* const out_;
  const bool utf8_;
  bool first_ = true;
};

}  // namespace sluice
