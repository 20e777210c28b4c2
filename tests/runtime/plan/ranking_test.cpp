#include "runtime/plan/search/ranking.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "runtime/plan/search/search.hpp"

namespace sluice {
namespace {

// Peaks in MiB.
Suggestion suggestion(double step_s, std::int64_t device, std::int64_t host, int settings) {
  Suggestion s;
  s.plan.time.step_s = step_s;
  nth(s.plan.memory.tiers, Tier::kDevice).peak = device << 20;
  nth(s.plan.memory.tiers, Tier::kHost).peak = host << 20;
  for (int i = 0; i < settings; ++i) s.set.push_back({"key." + std::to_string(i), "value"});
  return s;
}

std::vector<double> steps(const std::vector<Suggestion>& suggestions) {
  std::vector<double> seconds;
  for (const Suggestion& s : suggestions) seconds.push_back(s.plan.time.step_s);
  return seconds;
}

TEST(Ranking, WhatIsSlowerAndNeedsAsMuchIsDropped) {
  std::vector<Suggestion> all{suggestion(4, 1000, 500, 2), suggestion(1, 1000, 500, 2),
                              suggestion(2, 910, 460, 2),  // no tenth less
                              suggestion(3, 1200, 600, 3), suggestion(5, 1000, 460, 2)};
  keep_best(all, 5);
  EXPECT_EQ(steps(all), (std::vector<double>{1}));
}

TEST(Ranking, LessOfOneTierOrFewerSettingsIsAReason) {
  std::vector<Suggestion> all{suggestion(2, 890, 500, 2), suggestion(3, 1000, 400, 2),
                              suggestion(4, 1000, 500, 1), suggestion(1, 1000, 500, 2)};
  keep_best(all, 5);
  EXPECT_EQ(steps(all), (std::vector<double>{1, 2, 3, 4}));
  keep_best(all, 2);
  EXPECT_EQ(steps(all), (std::vector<double>{1, 2}));
}

// Dropped suggestions take no place of the others.
TEST(Ranking, TheNextOnesMoveUp) {
  std::vector<Suggestion> all{suggestion(1, 1000, 500, 2), suggestion(2, 1000, 500, 2),
                              suggestion(3, 500, 500, 2)};
  keep_best(all, 2);
  EXPECT_EQ(steps(all), (std::vector<double>{1, 3}));
}

}  // namespace
}  // namespace sluice
