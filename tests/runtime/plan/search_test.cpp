#include "runtime/plan/search/search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/bytes.hpp"
#include "base/index.hpp"
#include "runtime/plan/plan_report.hpp"
#include "runtime/plan/search/bounds.hpp"
#include "runtime/plan/search/search_text.hpp"
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
  const TierPlan device = planner.plan({options, {}}).memory.of(Tier::kDevice);
  for (const double share : {2.0, 0.8, 0.6}) {
    PlanQuestion question{options, {}};
    question.budgets.device =
        static_cast<std::int64_t>(share * static_cast<double>(device.peak)) + device.nccl;
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
  const TierPlan device = planner.plan(question).memory.of(Tier::kDevice);
  question.budgets.device = device.peak * 7 / 10 + device.nccl;
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

// As a large model on a card of 24 GB: states take half as long to cross the disk as compute needs.
EngineOptions one_card() {
  EngineOptions options = small_options(1);
  options.model.layers = 8;
  options.train.micro_batch = 1;
  options.train.global_batch = 64;
  options.recompute.mode = RecomputeMode::kFull;
  options.offload.optimizer = Tier::kNvme;
  options.zero.stage = 3;
  return options;
}

MachineProfile with_slow_drive(const char* name) {
  MachineProfile machine = named_profile(name);
  machine.disk_read_bps /= 64;
  machine.disk_write_bps /= 64;
  machine.gemm_flops.bf16 /= 8000;
  return machine;
}

// The bound that sorts candidates is below what each of them takes.
TEST(Search, NoStepIsShorterThanItsBound) {
  int compared = 0;
  for (const char* name : {"rtx4090", "cpu"}) {
    Planner planner(with_slow_drive(name));
    for (const Rung& rung : placement_ladder()) {
      for (const bool layer : {false, true}) {
        for (const int dp : {1, 2}) {
          for (const bool guess : {false, true}) {
            if (guess && rung.optimizer == Tier::kDevice) continue;
            EngineOptions options = one_card();
            options.dp = dp;
            options.train.accumulation_order =
                layer ? AccumulationOrder::kLayer : AccumulationOrder::kMicro;
            place(options, rung);
            if (guess) options.offload.speculate = Speculation::kAuto;
            options.offload.activations = rung.parameters;  // each tier with some of the rungs
            const RunPlan plan = planner.plan({options, {}});
            const StepPlan step = planner.shape_of(planner.at_stage(options, 0));
            const Rates rates = planner.rates(planner.at_stage(options, 0));
            const TierBytes floor = memory_floor(step.shape);
            for (std::size_t t = 0; t < floor.size(); ++t) {
              EXPECT_LE(floor[t], plan.memory.tiers[t].peak) << t << ", " << rung.name;
            }
            EXPECT_LE(time_floor({&step, 1}, {&rates, 1}), plan.time.step_s * (1 + 1e-9))
                << name << ", " << rung.name << (layer ? ", layer" : "")
                << (guess ? ", guess" : "");
            ++compared;
          }
        }
      }
    }
  }
  EXPECT_EQ(compared, 2 * 2 * 2 * (8 + 7));
}

// A bound far below what a candidate takes costs a plan of it: those of an update between two steps
// and of activations on the host are close.
TEST(Search, BoundsAreClose) {
  Planner planner(with_slow_drive("rtx4090"));
  EngineOptions options = one_card();
  const auto bounds_of = [&] {
    const EngineOptions rank = planner.at_stage(options, 0);
    const StepPlan step = planner.shape_of(rank);
    const Rates rates = planner.rates(rank);
    return std::pair(time_floor({&step, 1}, {&rates, 1}), memory_floor(step.shape)[1]);
  };
  const RunPlan micro = planner.plan({options, {}});
  EXPECT_GT(bounds_of().first, 0.9 * micro.time.step_s);
  options.train.accumulation_order = AccumulationOrder::kLayer;
  const std::int64_t states = bounds_of().second;
  options.offload.activations = Tier::kHost;
  const std::int64_t inputs = 64 * 32 * 64 * 2;  // of a block, in bf16
  EXPECT_EQ(bounds_of().second - states, 7 * inputs);
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

// A budget that is met by the next unit's parameters alone.
TEST(Search, WhereNothingFitsNoUnitIsGatheredAhead) {
  Planner planner(named_profile("cpu"));
  PlanQuestion question{one_card(), {}};
  place(question.options, placement_ladder().back());
  question.options.offload.activations = Tier::kNvme;
  question.options.train.global_batch = 1;  // the smallest step there is
  EngineOptions late = question.options;
  late.zero.prefetch_units = 0;
  question.budgets.device = planner.plan({late, {}}).peak(Tier::kDevice);
  const SearchResult result = suggest(planner, question, wide());
  ASSERT_TRUE(result.any_fits) << suggestions_text(result);
  EXPECT_EQ(value_of(result.suggestions.front(), "zero.prefetch_units"), "0")
      << suggestions_text(result);
}

// Figures of a large model on one card.
TEST(Search, NoLineOfASuggestionIsLong) {
  RunPlan plan;
  plan.time.step_s = 14398;
  plan.tokens_per_step = 262144;
  const std::array<std::int64_t, 3> peaks{28'669'000'000, 22'763'000'000, 1'275'000'000'000};
  for (std::size_t t = 0; t < peaks.size(); ++t) {
    plan.memory.tiers[t].peak = peaks[t];
    plan.memory.tiers[t].budget = peaks[t] - 1;
  }
  const std::string text = suggestions_text({.suggestions = {{{}, plan}}, .any_fits = false});
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos;
       begin = end + 1, end = text.find('\n', begin)) {
    EXPECT_LE(end - begin, 80U) << text;
  }
}

TEST(Search, AReportSaysWhatMoreMicroBatchesDoNotHide) {
  Planner planner(with_slow_drive("rtx4090"));
  PlanQuestion question{one_card(), {}};
  const std::string words = "train.accumulation_order: layer";
  const std::string text = report_text(planner.plan(question), {});
  EXPECT_NE(text.find(words), std::string::npos) << text;
  question.options.train.accumulation_order = AccumulationOrder::kLayer;
  EXPECT_EQ(report_text(planner.plan(question), {}).find(words), std::string::npos);
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
  std::int64_t room = 0;
  for (const Suggestion& s : result.suggestions) {
    if (s.plan.peak(Tier::kNvme) > 0) {
      EXPECT_EQ(value_of(s, "offload.nvme_path"), kNvmePlaceholder);
      room = std::max(room, nth(s.plan.node.peak, Tier::kNvme));
    }
  }
  EXPECT_NE(suggestions_text(result).find("\n[DIR]: a folder on a drive; the ranks of a host need "
                                          "up to " +
                                          format_bytes(room) + " there\n"),
            std::string::npos)
      << suggestions_text(result);
}

// What leaves the device need not leave whole, and need not wait for the norm. On this machine the
// host's updates take about as long as the device computes.
TEST(Search, UsesWhatTheDeviceHasLeftAndBeginsUpdatesEarly) {
  EngineOptions options = small_options(1);
  options.offload.optimizer = Tier::kHost;
  MachineProfile machine = named_profile("rtx4090");
  const RunPlan fast = Planner(machine).plan({options, {}});
  const double longer = nth(fast.time.busy, Lane::kCompute) / nth(fast.time.busy, Lane::kHost);
  machine.adam_params_per_s.bf16 /= longer;
  machine.adam_params_per_s.fp32 /= longer;
  Planner planner(machine);
  PlanQuestion question{options, {}};
  const RunPlan plain = planner.plan(question);
  question.budgets.device =
      plain.memory.of(Tier::kDevice).need() + plain.memory.of(Tier::kHost).peak / 4;
  const SearchResult result = suggest(planner, question, wide());
  ASSERT_TRUE(result.any_fits);
  const Suggestion& best = result.suggestions.front();
  EXPECT_LT(best.plan.time.step_s, 0.95 * plain.time.step_s);
  EXPECT_EQ(value_of(best, "offload.speculate"), "auto");
  EXPECT_NE(value_of(best, "offload.device_fraction"), "");
  for (const Suggestion& a : result.suggestions) {
    EXPECT_TRUE(a.plan.fits());
    for (const Suggestion& b : result.suggestions) {
      const bool alike = a.plan.time.step_s == b.plan.time.step_s &&
                         a.plan.peak(Tier::kDevice) == b.plan.peak(Tier::kDevice) &&
                         a.plan.peak(Tier::kHost) == b.plan.peak(Tier::kHost);
      EXPECT_EQ(alike, &a == &b) << "one of two plans that are alike is enough";
    }
  }
  const auto kept = [](const SearchResult& found) {
    double most = 0;
    for (const Suggestion& s : found.suggestions) {
      most = std::max(most, s.options.offload.device_fraction);
    }
    return most;
  };
  question.options.offload.states_dtype = DType::kBFloat16;  // 6 bytes an element in place of 10
  EXPECT_GT(kept(suggest(planner, question, wide())), 1.3 * kept(result));
}

// On a GPU whose memory holds the states with recomputation alone.
TEST(Search, StatesLeaveAGpuThatHoldsThemWhereThatIsFaster) {
  EngineOptions options = small_options(1);
  options.recompute.mode = RecomputeMode::kFull;
  for (const double host : {1e3, 1e-3}) {
    MachineProfile machine = named_profile("rtx4090");
    machine.adam_params_per_s.bf16 *= host;
    machine.adam_params_per_s.fp32 *= host;
    machine.h2d_bps *= 1e3;
    machine.d2h_bps *= 1e3;
    Planner planner(machine);
    PlanQuestion question{options, {}};
    question.budgets.device = planner.plan(question).memory.of(Tier::kDevice).need();
    const SearchResult result = suggest_for_gpus(planner, question, wide());
    ASSERT_TRUE(result.any_fits);
    const bool leaves = result.suggestions.front().plan.peak(Tier::kHost) > 0;
    EXPECT_EQ(leaves, host > 1);
    double before = 0;
    for (const Suggestion& s : result.suggestions) {
      EXPECT_TRUE(s.plan.fits());
      EXPECT_EQ(s.plan.peak(Tier::kHost) > 0, value_of(s, "offload.optimizer") != "");
      EXPECT_GE(s.plan.time.step_s, before);
      before = s.plan.time.step_s;
    }
    EXPECT_LE(result.suggestions.size(), 5U);
  }
}

// Gradients of tied embeddings are added up in memory: with them on NVMe there is no such pipeline.
TEST(Search, CompareSaysWhyACellIsRefusedAndGoesOn) {
  Planner planner(named_profile("h100-sxm"));
  EngineOptions options = small_options();
  options.model.tie_embeddings = true;
  options.parallel.pipeline = 2;
  const std::vector<FitRow> rows = compare(planner, {options, {}});
  int refused = 0;
  for (const FitRow& row : rows) {
    for (const FitCell& cell : row.stages) refused += cell.refused.empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 0);
  EXPECT_TRUE(rows[0].stages[0].refused.empty());
  EXPECT_GT(rows[0].stages[0].device, 0);
  const std::string text = compare_text(rows);
  EXPECT_NE(text.find("- (1)"), std::string::npos) << text;
  EXPECT_NE(text.find("\n(1) refused: offload.gradients: nvme: "), std::string::npos) << text;
  EXPECT_EQ(text.find("(2)"), std::string::npos) << text;
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
