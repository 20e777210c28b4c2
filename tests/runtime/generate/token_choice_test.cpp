#include "runtime/generate/token_choice.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "base/error.hpp"

namespace sluice {
namespace {

const std::vector<float> kLogits{0.5F, 2.0F, -1.0F, 2.0F, 1.0F};

std::map<std::int64_t, int> draws(const SamplingOptions& options, int count) {
  std::map<std::int64_t, int> seen;
  for (int position = 0; position < count; ++position) {
    ++seen[choose_token(kLogits, options, position)];
  }
  return seen;
}

std::string message_of(const SamplingOptions& options) {
  try {
    check_sampling(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TokenChoice, GreedyTakesTheFirstOfTheLikeliest) {
  for (int position = 0; position < 9; ++position) {
    EXPECT_EQ(choose_token(kLogits, {.temperature = 0}, position), 1);
  }
}

TEST(TokenChoice, IsAFunctionOfSeedAndPosition) {
  const SamplingOptions options{.temperature = 1.3, .seed = 5};
  std::vector<std::int64_t> first;
  for (int p = 0; p < 40; ++p) first.push_back(choose_token(kLogits, options, p));
  for (int p = 39; p >= 0; --p) {
    EXPECT_EQ(choose_token(kLogits, options, p), first[static_cast<std::size_t>(p)]);
  }
  std::vector<std::int64_t> other;
  for (int p = 0; p < 40; ++p) {
    other.push_back(choose_token(kLogits, {.temperature = 1.3, .seed = 6}, p));
  }
  EXPECT_NE(first, other);
}

TEST(TokenChoice, FrequenciesAreTheSoftmax) {
  constexpr int kDraws = 20000;
  for (const double temperature : {0.7, 1.0, 2.5}) {
    const auto seen = draws({.temperature = temperature}, kDraws);
    double sum = 0;
    for (const float logit : kLogits) sum += std::exp(logit / temperature);
    for (std::size_t i = 0; i < kLogits.size(); ++i) {
      const double p = std::exp(kLogits[i] / temperature) / sum;
      const auto at = seen.find(static_cast<std::int64_t>(i));
      const double got = at == seen.end() ? 0 : at->second / double{kDraws};
      EXPECT_NEAR(got, p, 5 * std::sqrt(p * (1 - p) / kDraws)) << i << ", " << temperature;
    }
  }
}

TEST(TokenChoice, TopKKeepsTheLikeliest) {
  EXPECT_EQ(draws({.top_k = 1}, 50).size(), 1U);
  const auto two = draws({.top_k = 2}, 400);
  EXPECT_EQ(two.size(), 2U);
  EXPECT_EQ(two.count(1) + two.count(3), 2U);
  EXPECT_EQ(draws({.temperature = 3, .top_k = 99}, 4000).size(), kLogits.size());
}

TEST(TokenChoice, TopPKeepsTheFewestThatReachIt) {
  // Probabilities: 0.37 0.37 0.14 0.08 0.02 in order of rank.
  EXPECT_EQ(draws({.top_p = 0.3}, 400).size(), 1U);
  EXPECT_EQ(draws({.top_p = 0.7}, 400).size(), 2U);
  EXPECT_EQ(draws({.top_p = 0.8}, 400).size(), 3U);
  EXPECT_EQ(draws({.top_p = 1.0}, 4000).size(), 5U);
  EXPECT_EQ(draws({.top_k = 2, .top_p = 0.9}, 400).size(), 2U);
}

TEST(TokenChoice, OptionsWithoutMeaningAreRefused) {
  EXPECT_EQ(message_of({.temperature = -1}),
            "--temperature -1.000000: expected a number from 0 (greedy) on");
  EXPECT_EQ(message_of({.top_k = -2}), "--top-k -2: expected a number of tokens, or 0 for all");
  EXPECT_EQ(message_of({.top_p = 0}),
            "--top-p 0.000000: expected a probability above 0 and up to 1");
  EXPECT_NE(message_of({.top_p = 1.01}), "");
  EXPECT_EQ(message_of({}), "");
}

TEST(TokenChoice, LogitsThatAreNoNumbersAreRefused) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    const std::vector<float> logits{1.0F, bad};
    EXPECT_THROW((void)choose_token(logits, {}, 3), TrainingError);
    EXPECT_THROW((void)choose_token(logits, {.temperature = 0}, 3), TrainingError);
  }
}

}  // namespace
}  // namespace sluice
