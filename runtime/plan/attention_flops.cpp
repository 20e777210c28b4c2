#include "runtime/plan/attention_flops.hpp"

#include <algorithm>

namespace sluice {
namespace {

// As if each row had so many keys more, so that rows of 4096 tokens have `gain` times the rate of
// rows of 1024. Attention of twice the rate has 2048 more; more than that is noise.
double keys_more(double gain) {
  constexpr double kKeys = 1024, kManyKeys = 4096, kMostGain = 2;
  const double g = std::clamp(gain, 1.0, kMostGain);
  return (g - 1) / (1 / kKeys - g / kManyKeys);
}

// Time of a pair with `share` of 128 elements, of the time with all of them; `half`: with 64.
double time_of_head(double share, double half) {
  return 1 - 2 * (1 - std::clamp(half, 0.5, 1.0)) * (1 - share);
}

}  // namespace

double attention_flops(const AttentionFlops& known, const ModelOptions& options) {
  const bool cudnn = known.cudnn && (options.attention == AttentionBackend::kCudnn || !known.flash);
  const auto& operators = cudnn ? known.cudnn : known.flash;
  if (!operators) return 0;
  constexpr double kHead = 128, kKeys = 1024;
  const AttentionRates& rates = *operators;
  const double more = keys_more(rates.head_128_long / rates.head_128);
  const auto of_pairs = [&](double keys) { return keys / (keys + more); };
  const double half = rates.head_128 / rates.head_64 / 2;
  const double head = std::min(static_cast<double>(options.head_dim) / kHead, 1.0);
  const bool windowed = options.sliding_window > 0 && options.sliding_window < options.seq;
  const auto keys = static_cast<double>(windowed ? options.sliding_window : options.seq);
  return rates.head_128 * head / time_of_head(head, half) * of_pairs(keys) / of_pairs(kKeys);
}

}  // namespace sluice
