#include "runtime/run/plan_watch.hpp"

#include <array>
#include <cstdio>

#include "base/bytes.hpp"

namespace sluice {
namespace {

std::optional<double> error_of(double planned, double measured) {
  if (planned <= 0) return std::nullopt;
  return measured / planned - 1.0;
}

std::string line_of(const std::string& what, const std::string& planned,
                    const std::string& measured, std::optional<double> error) {
  std::string text = what + ": planned " + planned + ", measured " + measured;
  if (!error) return text;
  std::array<char, 48> percent{};
  std::snprintf(percent.data(), percent.size(), " (%+.2f %%)", 100 * *error);
  return text + percent.data();
}

std::string milliseconds(double ms) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), ms < 99.95 ? "%.1f ms" : "%.0f ms", ms);
  return text.data();
}

}  // namespace

PlanWatch::PlanWatch(const Program& program, const StepShape& shape, const MemoryPlan& memory,
                     const std::optional<RunRates>& rates, double gemm_rate)
    : program_(program), shape_(shape), memory_(memory), rates_(rates) {
  if (rates_ && rates_->share_of_measured > 0) {
    rates_->rates.flops = gemm_rate * rates_->share_of_measured;
  }
}

const TimeReport* PlanWatch::predicted() {
  if (!rates_) return nullptr;
  if (!predicted_) predicted_ = predict_time(program_, shape_, rates_->rates);
  return &*predicted_;
}

std::vector<std::string> PlanWatch::compare(StepRecord& record, const CountedTiers& counted) {
  if (++steps_ < kFirstCompared) return {};
  PlanError error;
  std::vector<std::string> lines;
  const auto tier = [&](Tier t, bool is_counted, std::int64_t measured,
                        std::optional<double>& into) {
    const std::int64_t planned = memory_.of(t).peak;
    if (!is_counted || (planned == 0 && measured == 0)) return;
    into = error_of(static_cast<double>(planned), static_cast<double>(measured));
    lines.push_back(line_of(std::string(name_of(t)) + " peak", format_bytes(planned),
                            format_bytes(measured), into));
  };
  tier(Tier::kDevice, counted.device, record.memory.device_peak, error.device);
  tier(Tier::kHost, counted.host, record.memory.host_peak, error.host);
  tier(Tier::kNvme, counted.nvme, record.memory.nvme, error.nvme);
  if (const TimeReport* time = counted.step_time ? predicted() : nullptr) {
    error.step_ms = error_of(time->step_s * 1e3, record.step_ms);
    lines.push_back(line_of("step time", milliseconds(time->step_s * 1e3),
                            milliseconds(record.step_ms), error.step_ms) +
                    "; rates: " + rates_->origin);
  }
  record.plan_error = error;
  if (steps_ > kFirstCompared) lines.clear();
  return lines;
}

}  // namespace sluice
