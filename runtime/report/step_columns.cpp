#include "runtime/report/step_columns.hpp"

#include <algorithm>
#include <cmath>

namespace sluice {

std::string_view key_of(Channel channel) {
  static constexpr std::array<std::string_view, kChannels> kKeys{"loss",
                                                                 "grad_norm",
                                                                 "lr",
                                                                 "loss_scale",
                                                                 "step_ms",
                                                                 "tokens_per_s",
                                                                 "mfu",
                                                                 "mfu_of_card",
                                                                 "timers_ms.forward",
                                                                 "timers_ms.backward",
                                                                 "timers_ms.comm",
                                                                 "timers_ms.optimizer",
                                                                 "timers_ms.io",
                                                                 "timers_ms.data",
                                                                 "memory.device_peak",
                                                                 "memory.host_peak",
                                                                 "memory.pinned",
                                                                 "memory.nvme",
                                                                 "memory.resident_peak"};
  return kKeys.at(static_cast<std::size_t>(channel));
}

void StepColumns::add(const StepLine& line) {
  if (!step.empty() && line.step <= step.back()) drop_from(line.step);
  const auto ms = static_cast<double>(line.values[static_cast<std::size_t>(Channel::kStepMs)]);
  const double before = seconds.empty() ? 0 : seconds.back();
  step.push_back(line.step);
  tokens.push_back(line.tokens);
  seconds.push_back(before + (std::isfinite(ms) && ms > 0 ? ms / 1e3 : 0));
  for (std::size_t c = 0; c < kChannels; ++c) values.at(c).push_back(line.values.at(c));
  if (line.skipped) skipped.push_back(line.step);
  if (line.checkpoint_ms > 0) stalls.emplace_back(line.step, line.checkpoint_ms);
  if (!std::isnan(line.eval_loss)) {
    evaluations.push_back({line.step, line.eval_loss, line.eval_sets});
  }
}

std::size_t StepColumns::index_of(std::int64_t wanted) const {
  const auto after = std::upper_bound(step.begin(), step.end(), wanted);
  return after == step.begin() ? size() : static_cast<std::size_t>(after - step.begin()) - 1;
}

void StepColumns::drop_from(std::int64_t first) {
  const auto from = std::lower_bound(step.begin(), step.end(), first);
  const auto kept = static_cast<std::size_t>(from - step.begin());
  step.resize(kept);
  tokens.resize(kept);
  seconds.resize(kept);
  for (std::vector<float>& column : values) column.resize(kept);
  std::erase_if(evaluations, [first](const Evaluation& e) { return e.step >= first; });
  std::erase_if(skipped, [first](std::int64_t s) { return s >= first; });
  std::erase_if(stalls, [first](const auto& stall) { return stall.first >= first; });
}

}  // namespace sluice
