// What bounds a search beside the budgets of single tiers.
#include <gtest/gtest.h>

#include <string>

#include "runtime/plan/search/search.hpp"
#include "runtime/plan/search/search_text.hpp"
#include "tests/runtime/plan/small.hpp"

namespace sluice {
namespace {

using testing::small_options;

// The nearest miss of a huge model is not planned: its program would take minutes.
TEST(SearchLimits, WhereAModelIsFarTooLargeNoNearestMiss) {
  Planner planner(named_profile("h100-sxm"));
  PlanQuestion question{small_options(), {.device = 1}};
  SearchLimits limits;
  limits.most_chunks = 0;
  const SearchResult result = suggest(planner, question, limits);
  EXPECT_EQ(result.evaluated, 0);
  EXPECT_EQ(suggestions_text(result).substr(suggestions_text(result).rfind("\n  ")),
            "\n  nothing fits\n");
}

// Ranks on CPUs have their device in the host's memory.
TEST(SearchLimits, DeviceAndHostShareABudget) {
  Planner planner(named_profile("cpu"));
  PlanQuestion question{small_options(1), {}};
  question.options.tiers.nvme.queue_depth = 1;
  question.options.offload.optimizer = Tier::kHost;
  const RunPlan plan = planner.plan(question);
  question.budgets.memory = (plan.peak(Tier::kDevice) + plan.peak(Tier::kHost)) * 3 / 4;
  EXPECT_EQ(planner.plan(question).missing(),
            plan.peak(Tier::kDevice) + plan.peak(Tier::kHost) - question.budgets.memory);
  SearchLimits limits{.most = 50};
  limits.allowed = [](const EngineOptions& options) { return options.zero.stage < 3; };
  const SearchResult result = suggest(planner, question, limits);
  ASSERT_TRUE(result.any_fits) << suggestions_text(result);
  for (const Suggestion& s : result.suggestions) {
    EXPECT_LE(s.plan.peak(Tier::kDevice) + s.plan.peak(Tier::kHost), question.budgets.memory);
  }
  // What NVMe need not hold stays on the device.
  EXPECT_NE(suggestions_text(result).find("offload.device_fraction"), std::string::npos)
      << suggestions_text(result);
}

}  // namespace
}  // namespace sluice
