#include "runtime/run/plan_watch.hpp"

#include <cmath>
#include <cstdio>

#include "base/bytes.hpp"
#include "base/counted.hpp"

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

constexpr std::array kWatchedTiers = {Tier::kDevice, Tier::kHost, Tier::kNvme};
static_assert(kPeakValues == 2 * kWatchedTiers.size());

// One tier's peak on one rank.
struct RankPeak {
  int rank = 0;
  double planned = 0;
  double measured = 0;

  [[nodiscard]] double error() const { return std::abs(error_of(planned, measured).value_or(0)); }
};

// `whose`: what follows "device peak".
std::string line_of(Tier tier, const std::string& whose, double planned, double measured) {
  return line_of(std::string(name_of(tier)) + " peak" + whose,
                 format_bytes(static_cast<std::int64_t>(planned)),
                 format_bytes(static_cast<std::int64_t>(measured)), error_of(planned, measured));
}

std::string line_of(Tier tier, const RankPeak& peak, const std::string& which) {
  return line_of(tier, " of rank " + std::to_string(peak.rank) + which, peak.planned,
                 peak.measured);
}

}  // namespace

PeakValues peak_values(const MemoryPlan& memory, const StepMemory& measured,
                       const CountedTiers& counted) {
  const std::array<bool, kWatchedTiers.size()> is_counted = {counted.device, counted.host,
                                                             counted.nvme};
  const std::array<std::int64_t, kWatchedTiers.size()> bytes = {measured.device_peak,
                                                                measured.host_peak, measured.nvme};
  PeakValues values;
  values.fill(-1);
  for (std::size_t t = 0; t < kWatchedTiers.size(); ++t) {
    if (!is_counted.at(t)) continue;
    values.at(2 * t) = static_cast<double>(memory.of(kWatchedTiers.at(t)).peak);
    values.at(2 * t + 1) = static_cast<double>(bytes.at(t));
  }
  return values;
}

OtherPeaks other_peaks(std::span<const double> all, double tolerance) {
  // Ranks of equal plans differ by parts of a percent.
  constexpr double kFuller = 1.01;
  OtherPeaks said;
  const std::size_t ranks = all.size() / kPeakValues;
  for (std::size_t t = 0; t < kWatchedTiers.size(); ++t) {
    RankPeak first, fullest, furthest;
    for (std::size_t r = 0; r < ranks; ++r) {
      const RankPeak peak{static_cast<int>(r), all[r * kPeakValues + 2 * t],
                          all[r * kPeakValues + 2 * t + 1]};
      if (r == 0) first = fullest = peak;
      if (peak.measured > fullest.measured) fullest = peak;
      if (r > 0 && peak.error() > furthest.error()) furthest = peak;
    }
    const bool fuller = fullest.rank > 0 && fullest.measured > first.measured * kFuller;
    const bool off_plan = furthest.error() > tolerance;
    const bool same_rank = fuller && off_plan && furthest.rank == fullest.rank;
    const std::string of_all = ", the fullest of " + counted(static_cast<int>(ranks), "rank");
    if (fuller && !same_rank) {
      said.fullest.push_back(line_of(kWatchedTiers.at(t), fullest, of_all));
    }
    if (off_plan) {
      said.off_plan.push_back(line_of(kWatchedTiers.at(t), furthest, same_rank ? of_all : ""));
    }
  }
  return said;
}

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
  const PeakValues peaks = peak_values(memory_, record.memory, counted);
  const std::array errors = {&error.device, &error.host, &error.nvme};
  for (std::size_t t = 0; t < kWatchedTiers.size(); ++t) {
    const double planned = peaks.at(2 * t), measured = peaks.at(2 * t + 1);
    if (planned < 0 || (planned == 0 && measured == 0)) continue;
    *errors.at(t) = error_of(planned, measured);
    lines.push_back(line_of(kWatchedTiers.at(t), "", planned, measured));
  }
  const TimeReport* const time = counted.step_time ? predicted() : nullptr;
  if (time != nullptr && rates_) {
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
