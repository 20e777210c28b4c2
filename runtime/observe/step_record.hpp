// The values of one optimizer step: one line of metrics.jsonl (docs: runtime/observe/README.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sluice {

struct StepMemory {  // bytes on this rank; the first four are counted, tier by tier
  std::int64_t device_peak = 0;
  std::int64_t host_peak = 0;  // off the device: the plan's host tier; 0 where nothing is
  std::int64_t pinned = 0;
  std::int64_t nvme = 0;
  std::int64_t resident_peak = 0;  // of the process so far, as the system counts it
};

struct StepTimers {  // milliseconds; they overlap, so they need not add up to step_ms
  double forward = 0;
  double backward = 0;
  double comm = 0;
  double optimizer = 0;
  double io = 0;
  double data = 0;
};

// Measured over planned, less one; only of values that were counted and planned.
struct PlanError {
  std::optional<double> device;  // peaks of this rank
  std::optional<double> host;
  std::optional<double> nvme;
  std::optional<double> step_ms;
};

struct StepRecord {
  std::int64_t step = 0;    // from 1
  double loss = 0;          // mean over the global batch's tokens, before the update
  double grad_norm = 0;     // before clipping
  double lr = 0;            // used for this update
  double loss_scale = 1;    // used for this step
  bool skipped = false;     // no update: a gradient overflowed
  std::int64_t tokens = 0;  // trained on so far, this step included, over all ranks
  double step_ms = 0;
  double tokens_per_s = 0;  // over all ranks
  double tflops = 0;        // per device
  double mfu = 0;           // share of the best rate of matrix products seen so far; 0: unknown
  std::optional<double> mfu_of_card;  // share of the GPU's dense peak, where that is known
  StepMemory memory;
  StepTimers timers_ms;
  std::optional<PlanError> plan_error;  // from the third step of a process on
  // Time that the steps stood still for a checkpoint since the last line; only if one was saved.
  std::optional<double> checkpoint_ms;
  std::optional<double> eval_loss;  // only of steps that an evaluation followed
  std::optional<double> eval_ppl;
  std::vector<std::pair<std::string, double>> eval_losses{};  // of data.valid_sets, by name
};

// One JSON object without a line break, keys in the order above. A double reads back as the same
// double. NaN and infinity are null, since JSON has neither.
[[nodiscard]] std::string to_json_line(const StepRecord& record);

}  // namespace sluice
