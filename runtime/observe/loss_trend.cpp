#include "runtime/observe/loss_trend.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace sluice {
namespace {

struct Mean {
  double value = 0;
  double squared_error = 0;  // of the mean
};

Mean mean_of(std::deque<double>::const_iterator begin, std::size_t count) {
  const auto n = static_cast<double>(count);
  const auto end = begin + static_cast<std::ptrdiff_t>(count);
  Mean mean{.value = std::accumulate(begin, end, 0.0) / n};
  double squares = 0;
  for (auto at = begin; at != end; ++at) squares += (*at - mean.value) * (*at - mean.value);
  mean.squared_error = squares / (n - 1) / n;
  return mean;
}

}  // namespace

void LossTrendMeter::add(double loss) {
  if (!std::isfinite(loss)) return;
  losses_.push_back(loss);
  if (losses_.size() > 2 * kWindow) losses_.pop_front();
}

std::optional<LossTrend> LossTrendMeter::trend() const {
  if (losses_.size() < kFewest) return std::nullopt;
  const std::size_t count = std::min(kWindow, losses_.size() / 2);
  const auto last = losses_.end() - static_cast<std::ptrdiff_t>(count);
  const Mean now = mean_of(last, count);
  const Mean before = mean_of(last - static_cast<std::ptrdiff_t>(count), count);
  return LossTrend{.change = now.value - before.value,
                   .error = std::sqrt(now.squared_error + before.squared_error)};
}

}  // namespace sluice
