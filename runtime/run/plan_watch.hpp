// A run beside its plan: predicted and measured peaks and step time, for the log, metrics.jsonl and
// the trace. Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/observe/step_record.hpp"
#include "runtime/plan/plan_text.hpp"
#include "runtime/program/model/time_model.hpp"

namespace sluice {

// What this rank's steps are predicted from.
struct RunRates {
  Rates rates;
  // Above 0: rates.flops is this share of the matrix products' rate that the run measures itself.
  double share_of_measured = 0;
  std::string origin;  // for people
};

// Which of a record's figures are counted: a tier without a store is not, nor is a GPU's host tier.
// step_time: the step did all that its program says (Engine::next_step_is_whole).
struct CountedTiers {
  bool device = false;
  bool host = false;
  bool nvme = false;
  bool step_time = true;
};

class PlanWatch {
 public:
  // By the third step of a process every lazy allocation has been made.
  static constexpr int kFirstCompared = 3;

  // Without rates nothing is said of time. `gemm_rate`: FLOP/s that this rank measured. All but the
  // rates are borrowed and outlive this.
  PlanWatch(const Program& program, const StepShape& shape, const MemoryPlan& memory,
            const std::optional<RunRates>& rates, double gemm_rate);

  // To be called once a step, in their order: sets record.plan_error from the third on. Returns the
  // lines that the log should have: at the third, else none.
  std::vector<std::string> compare(StepRecord& record, const CountedTiers& counted);

  // The step as the time model has it; null without rates. Made when it is first asked for: the
  // start of a run does not wait for it.
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
