// Compares a run with its plan: predicted and measured peaks and step time, for the log,
// metrics.jsonl and the trace. Not thread-safe.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/observe/step_record.hpp"
#include "runtime/plan/plan_text.hpp"
#include "runtime/program/model/time_model.hpp"

namespace sluice {

// Rates for the prediction of this rank's steps.
struct RunRates {
  Rates rates;
  // Above 0: rates.flops is this share of the rate of matrix products that the run measures.
  double share_of_measured = 0;
  std::string origin;  // for people
};

// Which figures of a record are measured. Device: not if several ranks on the CPU share a process,
// because memory is counted by process. Host and NVMe: only if the engine has an off-device store.
// step_time: the step ran its whole program (Engine::next_step_is_whole).
struct CountedTiers {
  bool device = false;
  bool host = false;
  bool nvme = false;
  bool step_time = true;
};

// Planned and measured peak of each tier of a rank, bytes; both below 0: the tier is not counted.
inline constexpr std::size_t kPeakValues = 6;
using PeakValues = std::array<double, kPeakValues>;
[[nodiscard]] PeakValues peak_values(const MemoryPlan& memory, const StepMemory& measured,
                                     const CountedTiers& counted);

// What rank 0, whose peaks the log and metrics.jsonl have, says of the other ranks.
struct OtherPeaks {
  // Of each tier whose fullest rank has more than rank 0.
  std::vector<std::string> fullest;
  // Of each tier where another rank than 0 is further from its plan than `tolerance` (0.03: 3 %):
  // the furthest. A tier without planned bytes has no relative difference.
  std::vector<std::string> off_plan;
};
// `all`: peak_values() of every rank, in rank order. Pure.
[[nodiscard]] OtherPeaks other_peaks(std::span<const double> all, double tolerance);

class PlanWatch {
 public:
  // By the third step of a process every lazy allocation has been made.
  static constexpr int kFirstCompared = 3;

  // Without rates time is not compared. `gemm_rate`: FLOP/s that this rank measured. All arguments
  // but the rates are borrowed and outlive the PlanWatch.
  PlanWatch(const Program& program, const StepShape& shape, const MemoryPlan& memory,
            const std::optional<RunRates>& rates, double gemm_rate);

  // Called once a step, in order. Sets record.plan_error from the third step on. Returns lines for
  // the log at the third step, else none.
  std::vector<std::string> compare(StepRecord& record, const CountedTiers& counted);

  // The predicted step; null without rates. Computed at the first call, so a run starts without
  // the computation.
  const TimeReport* predicted();

 private:
  const Program& program_;
  const StepShape& shape_;
  const MemoryPlan& memory_;
  std::optional<RunRates> rates_;
  std::optional<TimeReport> predicted_;
  int steps_ = 0;
};

}  // namespace sluice
