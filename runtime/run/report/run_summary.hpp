// The summary at the end of a run: what it did, how long it took, where its files are. Kept by rank
// 0, from the records of the steps of this process. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/observe/step_record.hpp"
#include "runtime/run/report/energy_meter.hpp"

namespace sluice {

struct SummaryFacts {
  std::int64_t steps = 0;  // train.steps
  int world = 1;           // ranks of the run
  std::string output_dir;
  std::string checkpoint;  // the newest one that was saved; empty: none
  bool heading = false;    // the heading stands out
};

class RunSummary {
 public:
  // `gpus`: of the run on this host; 0: none. Time starts here.
  explicit RunSummary(int gpus) : energy_(gpus) {}

  void add(const StepRecord& record);
  void add_evaluation(double seconds) { evaluation_s_ += seconds; }
  void add_save(double seconds) { save_s_ += seconds; }
  // Lines, each with its line break.
  [[nodiscard]] std::string text(const SummaryFacts& facts);

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::string time_text() const;
  [[nodiscard]] std::string speed_text() const;
  [[nodiscard]] std::string energy_text();

  const Clock::time_point began_ = Clock::now();
  Clock::time_point sampled_ = began_;
  EnergyMeter energy_;
  std::optional<StepRecord> last_;
  std::int64_t steps_ = 0;
  std::int64_t skipped_ = 0;
  double step_s_ = 0;
  double tokens_ = 0;  // of this process's steps
  double mfu_s_ = 0;   // the sum of mfu x seconds, so that the mean is over time
  double card_s_ = 0;
  double evaluation_s_ = 0;
  double save_s_ = 0;
};

// The files of a run's folder for people: "checkpoints/ config.yaml metrics.jsonl rank-0.log".
// Locks, files of earlier runs (.1, logs of ranks from `world` on) and files that wait for a
// request are left out.
[[nodiscard]] std::string files_of_run(const std::string& output_dir, int world);

}  // namespace sluice
