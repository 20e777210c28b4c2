#include "runtime/plan/search.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/plan/bounds.hpp"
#include "runtime/plan/plan_report.hpp"
#include "tests/runtime/plan/small.hpp"

namespace sluice {
namespace {

using testing::small_options;

SearchLimits wide() { return {.most = 5, .evaluations = 100'000, .offload = true}; }

std::string value_of(const Suggestion& suggestion, const std::string& key) {
  for (const Setting& s : suggestion.set) {
    if (s.key == key) return s.value;
  }
  return "";
}

TEST(Search, EverySuggestionFitsAndTheFirstIsTheFastest) {
  Planner planner(named_profile("h100-sxm"));
  const EngineOptions options = small_options();
  const std::int64_t peak = planner.plan({options, {}}).peak(Tier::kDevice);
  for (const double share : {2.0, 0.8, 0.6}) {
    PlanQuestion question{options, {}};
    question.budgets.device = static_cast<std::int64_t>(share * static_cast<double>(peak));
    const SearchResult result = suggest(planner, question, wide());
    ASSERT_TRUE(result.any_fits) << share;
    double before = 0;
    for (const Suggestion& s : result.suggestions) {
      EXPECT_TRUE(s.plan.fits());
      EXPECT_LE(s.plan.peak(Tier::kDevice), question.budgets.device);
      EXPECT_GE(s.plan.time.step_s, before);
      before = s.plan.time.step_s;
      EXPECT_EQ(s.plan.tokens_per_step, options.train.global_batch * options.model.seq);
    }
  }
}

// Against all candidates, without bounds, cuts or drawing out: nothing that fits is faster.
TEST(Search, NoConfigurationOfTheGridIsFaster) {
  Planner planner(named_profile("h100-sxm"));
  EngineOptions options = small_options(2);
  options.train.global_batch = 2 * 2 * 2;
  PlanQuestion question{options, {}};
  question.budgets.device = planner.plan(question).peak(Tier::kDevice) * 7 / 10;
  const SearchResult result = suggest(planner, question, wide());
  ASSERT_TRUE(result.any_fits);
  const double best = result.suggestions.front().plan.time.step_s;
  for (const int stage : {0, 1, 2, 3}) {
    for (const std::int64_t micro_batch : {1, 2, 4}) {
      for (const bool layer : {false, true}) {
        for (const RecomputeMode mode :
             {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kFull}) {
          for (const Tier optimizer : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
            PlanQuestion other = question;
            other.options.zero.stage = stage;
            other.options.train.micro_batch = micro_batch;
            other.options.train.accumulation_order =
                layer ? AccumulationOrder::kLayer : AccumulationOrder::kMicro;
            other.options.recompute.mode = mode;
            other.options.model.recompute_attention = mode == RecomputeMode::kSelective;
            other.options.offload.optimizer = optimizer;
            const RunPlan plan = planner.plan(other);
            if (plan.fits()) {
              EXPECT_GE(plan.time.step_s, best * (1 - 1e-9));
            }
          }
        }
      }
    }
  }
}

TEST(Search, WhatIsConfiguredNeedsNoSetting) {
  Planner planner(named_profile("h100-sxm"));
  PlanQuestion question{small_options(), {}};
  const SearchResult first = suggest(planner, question, wide());
  ASSERT_TRUE(first.any_fits);
  EXPECT_EQ(value_of(first.suggestions.front(), "offload.optimizer"), "");
  const SearchResult again = suggest(planner, question, wide());
  ASSERT_EQ(again.suggestions.size(), first.suggestions.size());
  for (std::size_t i = 0; i < first.suggestions.size(); ++i) {
    EXPECT_EQ(again.suggestions[i].set, first.suggestions[i].set);
  }
}

// All that blocks keep leaves the device: no candidate otherwise, but one where it is configured.
TEST(Search, WhatIsConfiguredIsACandidate) {
  Planner planner(named_profile("cpu"));
  PlanQuestion question{small_options(), {}};
  const int others = suggest(planner, question, wide()).candidates;
  question.options.offload.activations = Tier::kHost;
  question.options.offload.optimizer = Tier::kHost;
  EXPECT_GT(suggest(planner, question, wide()).candidates, others);
  const RunPlan plan = planner.plan(question);
  const TierBytes floor = memory_floor(plan.shape);
  EXPECT_LE(floor[0], plan.peak(Tier::kDevice));
}

TEST(Search, WhereNothingFitsTheNearestMiss) {
  Planner planner(named_profile("h100-sxm"));
  PlanQuestion question{small_options(), {}};
  question.budgets.device = 1;
  question.budgets.host = 1;
  question.budgets.nvme = 1;
  const SearchResult result = suggest(planner, question, wide());
  EXPECT_FALSE(result.any_fits);
  ASSERT_EQ(result.suggestions.size(), 1U);
  EXPECT_GT(result.suggestions.front().plan.missing(), 0);
  EXPECT_LT(result.suggestions.front().plan.missing(), planner.plan(question).missing());
  EXPECT_NE(suggestions_text(result).find("misses least"), std::string::npos);
}

TEST(Search, NvmeIsSuggestedWithAPlaceForIt) {
  Planner planner(named_profile("cpu"));
  PlanQuestion question{small_options(), {}};
  question.options.tiers.nvme.queue_depth = 1;
  const EngineOptions& options = question.options;
  EngineOptions away = options;
  away.zero.stage = 3;
  away.offload.optimizer = away.offload.gradients = away.offload.parameters = Tier::kNvme;
  away.offload.activations = Tier::kDevice;
  away.recompute.mode = RecomputeMode::kFull;
  const RunPlan least = planner.plan({away, {}});
  question.budgets.device = least.peak(Tier::kDevice);
  question.budgets.host = least.peak(Tier::kHost);
  const SearchResult result = suggest(planner, question, wide());
  ASSERT_TRUE(result.any_fits);
  for (const Suggestion& s : result.suggestions) {
    if (s.plan.peak(Tier::kNvme) > 0) {
      EXPECT_EQ(value_of(s, "offload.nvme_path"), kNvmePlaceholder);
    }
  }
}

TEST(Search, CompareHasEveryCombinationThatHasAMeaning) {
  Planner planner(named_profile("h100-sxm"));
  const std::vector<FitRow> rows = compare(planner, {small_options(), {}});
  int possible = 0;
  for (const FitRow& row : rows) {
    ASSERT_EQ(row.stages.size(), 4U);
    for (const FitCell& cell : row.stages) possible += cell.possible ? 1 : 0;
  }
  // 3 rows for every stage, 2 for stages 2 and 3, 3 for stage 3.
  EXPECT_EQ(possible, 3 * 4 + 2 * 2 + 3);
  // Higher stages and lower tiers take less of the device.
  EXPECT_GT(rows[0].stages[0].device, rows[0].stages[1].device);
  EXPECT_GT(rows[0].stages[2].device, rows[0].stages[3].device);
  EXPECT_GT(rows[0].stages[3].device, rows[1].stages[3].device);
  for (const std::string& text : {compare_text(rows)}) {
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos;
         begin = end + 1, end = text.find('\n', begin)) {
      EXPECT_LE(end - begin, 80U);
    }
  }
}

}  // namespace
}  // namespace sluice
