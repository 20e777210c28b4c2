#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "base/error.hpp"
#include "parallel/pipeline/balance.hpp"

namespace sluice {
namespace {

using Ends = std::vector<int>;

double largest_part(const std::vector<double>& costs, const Ends& ends) {
  double largest = 0;
  int begin = 0;
  for (const int end : ends) {
    double cost = 0;
    for (; begin < end; ++begin) cost += costs[static_cast<std::size_t>(begin)];
    largest = std::max(largest, cost);
  }
  return largest;
}

// All cuts, one by one.
double best_by_trying(const std::vector<double>& costs, int parts, Ends& ends, int begin) {
  const auto units = static_cast<int>(costs.size());
  if (parts == 1) {
    ends.push_back(units);
    const double cost = largest_part(costs, ends);
    ends.pop_back();
    return cost;
  }
  double best = std::numeric_limits<double>::infinity();
  for (int end = begin + 1; units - end >= parts - 1; ++end) {
    ends.push_back(end);
    best = std::min(best, best_by_trying(costs, parts - 1, ends, end));
    ends.pop_back();
  }
  return best;
}

TEST(BalanceStages, NoCutIsBetter) {
  std::mt19937 random(7);
  for (int units = 1; units <= 9; ++units) {
    for (int parts = 1; parts <= units; ++parts) {
      std::vector<double> costs;
      for (int u = 0; u < units; ++u) costs.push_back(static_cast<double>(random() % 7));
      const Ends ends = balance_stages(costs, parts);
      ASSERT_EQ(static_cast<int>(ends.size()), parts);
      ASSERT_EQ(ends.back(), units);
      ASSERT_GT(ends.front(), 0);
      ASSERT_EQ(std::adjacent_find(ends.begin(), ends.end(), std::greater_equal<>()), ends.end());
      Ends tried;
      ASSERT_DOUBLE_EQ(largest_part(costs, ends), best_by_trying(costs, parts, tried, 0));
    }
  }
}

TEST(BalanceStages, WhatIsLeftIsSpreadEvenly) {
  const std::vector<double> seven(7, 1.0);
  const Ends ends = balance_stages(seven, 3);
  EXPECT_DOUBLE_EQ(largest_part(seven, ends), 3);
  Ends sizes;
  for (std::size_t k = 0; k < ends.size(); ++k) sizes.push_back(ends[k] - (k ? ends[k - 1] : 0));
  std::sort(sizes.begin(), sizes.end());
  EXPECT_EQ(sizes, (Ends{2, 2, 3}));
  // A head that costs three blocks gets a stage with fewer.
  EXPECT_EQ(balance_stages(std::vector<double>{0, 1, 1, 1, 1, 1, 3}, 2), (Ends{5, 7}));
  EXPECT_EQ(balance_stages(std::vector<double>{0.1, 0.1, 0.1}, 3), (Ends{1, 2, 3}));
}

TEST(BalanceStages, MoreStagesThanUnitsAreRefused) {
  try {
    (void)balance_stages(std::vector<double>(6, 1.0), 8);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("= 8 stages need a unit each, but the model has 6"),
              std::string::npos);
  }
}

// The embedding is before the first block, the loss head after the last.
TEST(GivenStages, AreCountsOfAllLayers) {
  EXPECT_EQ(given_stages(Ends{2, 1, 3}, 3, 6), (Ends{3, 4, 8}));
  EXPECT_EQ(given_stages(Ends{6}, 1, 6), (Ends{8}));
  EXPECT_THROW((void)given_stages(Ends{2, 4}, 3, 6), ConfigError);
  EXPECT_THROW((void)given_stages(Ends{2, 0, 4}, 3, 6), ConfigError);
  try {
    (void)given_stages(Ends{2, 1, 4}, 3, 6);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("2 + 1 + 4 = 7, but the model has 6"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace sluice
