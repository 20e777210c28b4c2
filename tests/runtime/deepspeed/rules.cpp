// Learning rates and loss scales for deepspeed_rules.py. Reads one request a line and answers with
// one line of numbers:
//
//   schedule TYPE WARMUP WARMUP_STEPS WARMUP_MIN_LR MIN_LR DECAY_STEPS LR STEPS
//   loss_scale STATIC INITIAL WINDOW FIRST_WINDOW HYSTERESIS CONSECUTIVE MIN OVERFLOWS
//
// TYPE and WARMUP are positions in their enums, OVERFLOWS is a word of 0 and 1. The answer to the
// second ends with `stop` if the run stops.
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include "runtime/run/train_options.hpp"
#include "zero/loss_scaler.hpp"

namespace sluice::testing {
namespace {

bool answer_schedule(std::istream& in) {
  int type = 0, warmup = 0;
  std::int64_t steps = 0;
  ScheduleOptions schedule{.counting = StepCounting::kDeepSpeed};
  OptimizerOptions optimizer;
  if (!(in >> type >> warmup >> schedule.warmup_steps.steps >> schedule.warmup_min_lr.rate >>
        schedule.min_lr.rate >> schedule.decay_steps.steps >> optimizer.lr >> steps)) {
    return false;
  }
  schedule.type = static_cast<ScheduleType>(type);
  schedule.warmup = static_cast<WarmupShape>(warmup);
  for (std::int64_t step = 1; step <= steps; ++step) {
    std::printf("%.17g ", learning_rate(optimizer, schedule, steps, step));
  }
  return true;
}

bool answer_loss_scale(std::istream& in) {
  LossScaleOptions options;
  std::string overflows;
  if (!(in >> options.fixed >> options.initial >> options.window >> options.first_window >>
        options.hysteresis >> options.consecutive_hysteresis >> options.min >> overflows)) {
    return false;
  }
  LossScaler scaler(options);
  for (const char overflow : overflows) {
    if (!scaler.update(overflow == '1')) {
      std::printf("stop");
      break;
    }
    std::printf("%.17g ", scaler.scale());
  }
  return true;
}

int answer_all() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::string what;
    in >> what;
    const bool known =
        what == "schedule" ? answer_schedule(in) : what == "loss_scale" && answer_loss_scale(in);
    if (!known) {
      std::fprintf(stderr, "not a request: %s\n", line.c_str());
      return 1;
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace sluice::testing

int main() { return sluice::testing::answer_all(); }
