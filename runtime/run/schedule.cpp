#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/run/train_options.hpp"

namespace sluice {
namespace {

// Positions of one step (StepCounting).
struct Positions {
  std::int64_t rise, fall;
};

Positions positions_of(const ScheduleOptions& schedule, std::int64_t step) {
  if (schedule.counting == StepCounting::kFromOne) return {step, step};
  if (schedule.counting == StepCounting::kFromZero) return {step - 1, step - 1};
  const bool log = schedule.warmup == WarmupShape::kLog;
  const bool cosine = schedule.type == ScheduleType::kCosine;
  return {log ? step - 1 : step - 2, cosine ? step - 1 : step - 2};
}

bool warms_up(const ScheduleOptions& schedule, std::int64_t warmup, std::int64_t step) {
  const std::int64_t last = schedule.counting == StepCounting::kFromOne ? warmup : warmup + 1;
  return warmup > 0 && step <= last;
}

// Rises from 0 to `height` at position `warmup`.
double risen(WarmupShape shape, double height, std::int64_t position, std::int64_t warmup) {
  const auto steps = static_cast<double>(std::clamp<std::int64_t>(position, 0, warmup));
  const auto all = static_cast<double>(warmup);
  if (shape == WarmupShape::kLinear) return height * steps / all;
  if (steps == all) return height;
  return steps < 1 ? 0 : height * (std::log(steps) / std::log(all));
}

}  // namespace

double learning_rate(const OptimizerOptions& optimizer, const ScheduleOptions& schedule,
                     std::int64_t total_steps, std::int64_t step) {
  const std::int64_t warmup = schedule.warmup_of(total_steps);
  const Positions at = positions_of(schedule, step);
  const bool cosine = schedule.type == ScheduleType::kCosine;
  if (warms_up(schedule, warmup, step)) {
    if (schedule.counting == StepCounting::kDeepSpeed && cosine && step == 1) return 0;
    const double low = schedule.warmup_min_lr.of(optimizer.lr);
    return low + risen(schedule.warmup, optimizer.lr - low, at.rise, warmup);
  }
  if (schedule.type == ScheduleType::kConstant) return optimizer.lr;
  const bool follows = schedule.decay_steps.is_auto();
  const std::int64_t end = follows ? total_steps : schedule.decay_steps.of(total_steps);
  const double min_lr = schedule.min_lr.of(optimizer.lr);
  std::int64_t begin = warmup;
  if (schedule.type == ScheduleType::kWsd) {
    const std::int64_t fall =
        schedule.wsd_decay.is_auto() ? (end + 9) / 10 : schedule.wsd_decay.of(total_steps);
    begin = std::max(begin, end - fall);
  }
  if (at.fall >= end) return min_lr;
  if (at.fall <= begin) return optimizer.lr;
  const double done = static_cast<double>(at.fall - begin) / static_cast<double>(end - begin);
  const double left = cosine ? 0.5 * (1.0 + std::cos(std::numbers::pi * done)) : 1.0 - done;
  return min_lr + (optimizer.lr - min_lr) * left;
}

}  // namespace sluice
