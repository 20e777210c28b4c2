// The progress line:
//
// clang-format off
//    step 120/2000 | loss 3.412 | grad norm 0.87 | lr 2.9e-04 | 412 ms | 19.9k tok/s | 41 % of measured rate
//    | device 1.3 GiB | eta 0:13:02                                            (one line)
// clang-format on
//
// A terminal rewrites the line at each step and keeps it every `log_every` steps. Other outputs get
// only the kept lines. Not thread-safe.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace sluice {

struct ProgressState {
  std::int64_t step = 0;
  std::int64_t steps = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double step_ms = 0;
  double tokens_per_s = 0;
  double mfu = 0;                 // of the measured rate, 0..1; 0: unknown, left out
  double mfu_of_card = 0;         // of the card's dense peak; 0: not a card that is known
  std::int64_t device_bytes = 0;  // peak on this rank; 0: left out
  double eta_seconds = -1;        // negative: unknown, left out
  bool skipped = false;           // adds "skipped" after the norm
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

struct ProgressOptions {
  std::int64_t log_every = 10;  // at least 1
  bool interactive = false;     // see terminal_info
  int columns = 0;          // of the terminal: a line rewritten in place must not wrap; 0: unknown
  std::FILE* out = stdout;  // borrowed
};

class ProgressPrinter {
 public:
  explicit ProgressPrinter(const ProgressOptions& options) : options_(options) {}
  ~ProgressPrinter() { clear(); }
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;

  // The first, the last and every log_every-th step are kept.
  void update(const ProgressState& state);
  // Removes a line that is to be rewritten from the terminal.
  void clear();

 private:
  ProgressOptions options_;
  bool first_ = true;
  bool transient_ = false;  // the cursor is behind a line that may be overwritten
};

}  // namespace sluice
