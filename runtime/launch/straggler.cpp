#include "runtime/launch/straggler.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/format.hpp"

namespace sluice {
namespace {

double median(std::vector<double> values) {
  const std::size_t half = values.size() / 2;
  std::sort(values.begin(), values.end());
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::vector<double> a_step(std::span<const double> sums, std::int64_t steps) {
  std::vector<double> values(sums.begin(), sums.end());
  for (double& value : values) value /= static_cast<double>(std::max<std::int64_t>(steps, 1));
  return values;
}

}  // namespace

std::optional<Straggler> find_straggler(std::span<const double> busy_ms,
                                        std::span<const double> waited_ms,
                                        const StragglerOptions& options) {
  if (busy_ms.size() < 2 || waited_ms.size() != busy_ms.size()) return std::nullopt;
  const auto slowest = std::max_element(busy_ms.begin(), busy_ms.end()) - busy_ms.begin();
  const auto at = static_cast<std::size_t>(slowest);
  std::vector<double> others;
  double waited = 0;   // by the others
  double because = 0;  // of it, what they would not have waited had it been as fast as the next
  double next = 0;
  for (std::size_t r = 0; r < busy_ms.size(); ++r) {
    if (r == at) continue;
    others.push_back(busy_ms[r]);
    waited += waited_ms[r];
    next = std::max(next, busy_ms[r]);
  }
  for (std::size_t r = 0; r < busy_ms.size(); ++r) {
    if (r != at) because += std::min(waited_ms[r], busy_ms[at] - next);
  }
  const double typical = median(others);
  const double excess = busy_ms[at] - typical;
  if (excess < options.least_ms || excess < options.least_excess * typical) return std::nullopt;
  return Straggler{.rank = static_cast<int>(slowest),
                   .busy_ms = busy_ms[at],
                   .others_ms = typical,
                   .share_waited = waited > 0 ? std::clamp(because / waited, 0.0, 1.0) : 0};
}

StragglerWatch::StragglerWatch(std::vector<std::string> hosts, StragglerOptions options)
    : hosts_(std::move(hosts)), options_(options) {}

std::string StragglerWatch::look(std::span<const double> busy_ms, std::span<const double> waited_ms,
                                 std::int64_t steps) {
  const auto found = find_straggler(a_step(busy_ms, steps), a_step(waited_ms, steps), options_);
  const int rank = found ? found->rank : -1;
  looks_ = rank == rank_ ? looks_ + 1 : 1;
  rank_ = rank;
  if (!found || looks_ < options_.looks) return {};
  if ((looks_ - options_.looks) % std::max(options_.repeat_after, 1) != 0) return {};
  const auto index = static_cast<std::size_t>(rank);
  const std::string host = index < hosts_.size() ? hosts_[index] : "";
  char figures[256];
  std::snprintf(figures, sizeof figures,
                " holds the others up: busy %.1f ms of each of the last %lld steps, the others "
                "%.1f ms (median); %.0f %% of their waiting is for it alone",
                found->busy_ms, static_cast<long long>(steps), found->others_ms,
                100 * found->share_waited);
  return format_text("rank {}{}{}", rank, host.empty() ? "" : " on " + host, figures);
}

}  // namespace sluice
