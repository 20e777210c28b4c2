#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/run/train_options.hpp"

namespace sluice {

double learning_rate(const OptimizerOptions& optimizer, const ScheduleOptions& schedule,
                     std::int64_t total_steps, std::int64_t step) {
  const std::int64_t warmup = schedule.warmup_steps.of(total_steps);
  if (step <= warmup) {
    return optimizer.lr * static_cast<double>(step) / static_cast<double>(warmup);
  }
  if (schedule.type == ScheduleType::kConstant) return optimizer.lr;
  const bool follows = schedule.decay_steps.is_auto();
  const std::int64_t end = follows ? total_steps : schedule.decay_steps.of(total_steps);
  std::int64_t begin = warmup;
  if (schedule.type == ScheduleType::kWsd) {
    const std::int64_t fall =
        schedule.wsd_decay.is_auto() ? (end + 9) / 10 : schedule.wsd_decay.of(total_steps);
    begin = std::max(begin, end - fall);
  }
  if (step <= begin) return optimizer.lr;
  if (step >= end) return schedule.min_lr;
  const double done = static_cast<double>(step - begin) / static_cast<double>(end - begin);
  const double left = schedule.type == ScheduleType::kCosine
                          ? 0.5 * (1.0 + std::cos(std::numbers::pi * done))
                          : 1.0 - done;
  return schedule.min_lr + (optimizer.lr - schedule.min_lr) * left;
}

}  // namespace sluice
