#include "runtime/generate/token_choice.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "kernels/cpu/philox.hpp"

namespace sluice {
namespace {

// Indices of the `count` largest logits, largest first.
std::vector<std::int64_t> ranked(std::span<const float> logits, std::int64_t count) {
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto before = [&](std::int64_t a, std::int64_t b) {
    const float x = nth(logits, a);
    const float y = nth(logits, b);
    return x != y ? x > y : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + count, order.end(), before);
  order.resize(static_cast<std::size_t>(count));
  return order;
}

// A value in [0, 1) with 53 random bits.
double uniform(std::uint64_t seed, std::int64_t position) {
  const auto words = philox_block(seed, hash_name("sample"), static_cast<std::uint64_t>(position));
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32) | words[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// The smallest number of leading tokens whose weights sum to at least the share `p` of all weights.
std::size_t nucleus(const std::vector<double>& cumulated, double p) {
  const double wanted = p * cumulated.back();
  const auto at = std::lower_bound(cumulated.begin(), cumulated.end(), wanted);
  return std::min(static_cast<std::size_t>(at - cumulated.begin()) + 1, cumulated.size());
}

}  // namespace

void check_sampling(const SamplingOptions& options) {
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature)) {
    throw ConfigError("--temperature " + std::to_string(options.temperature) +
                      ": expected a number from 0 (greedy) on");
  }
  if (options.top_k < 0) {
    throw ConfigError("--top-k " + std::to_string(options.top_k) +
                      ": expected a number of tokens, or 0 for all");
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    throw ConfigError("--top-p " + std::to_string(options.top_p) +
                      ": expected a probability above 0 and up to 1");
  }
}

std::int64_t choose_token(std::span<const float> logits, const SamplingOptions& options,
                          std::int64_t position) {
  check_sampling(options);
  check(!logits.empty(), "there are logits to choose from");
  for (const float logit : logits) {
    if (!std::isfinite(logit)) {
      throw TrainingError("position " + std::to_string(position) +
                          ": the model's logits are not finite; its weights are damaged, or too "
                          "large for train.dtype");
    }
  }
  const auto all = static_cast<std::int64_t>(logits.size());
  if (options.temperature == 0) {
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
  }
  const std::int64_t count = options.top_k == 0 ? all : std::min(options.top_k, all);
  const std::vector<std::int64_t> order = ranked(logits, count);
  const auto logit = [&](std::int64_t token) { return static_cast<double>(nth(logits, token)); };
  std::vector<double> cumulated;
  double sum = 0;
  for (const std::int64_t token : order) {
    sum += std::exp((logit(token) - logit(order[0])) / options.temperature);
    cumulated.push_back(sum);
  }
  cumulated.resize(nucleus(cumulated, options.top_p));
  const double draw = uniform(options.seed, position) * cumulated.back();
  const auto at = std::upper_bound(cumulated.begin(), cumulated.end(), draw) - cumulated.begin();
  return nth(order,
             std::min<std::ptrdiff_t>(at, static_cast<std::ptrdiff_t>(cumulated.size()) - 1));
}

}  // namespace sluice
