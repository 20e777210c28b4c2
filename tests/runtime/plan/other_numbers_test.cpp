#include "runtime/plan/search/other_numbers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "runtime/plan/search/search_text.hpp"
#include "runtime/plan/search/settings.hpp"
#include "tests/runtime/plan/small.hpp"

namespace sluice {
namespace {

using testing::small_options;

bool has(const Suggestion& suggestion, const Setting& setting) {
  return std::ranges::find(suggestion.set, setting) != suggestion.set.end();
}

const Setting kMoments{"offload.states_dtype", "bf16"};
const Setting kGradients{"offload.gradients_dtype", "bf16"};

// A card that holds the weights alone, with a slow drive.
struct Card {
  Card() {
    question.options.model.layers = 16;
    question.options.tiers.nvme.queue_depth = 1;  // buffers on the host are small beside states
    question.options.offload.optimizer = Tier::kHost;
    question.budgets.device = planner.plan(question).memory.of(Tier::kDevice).need();
  }
  static MachineProfile machine() {
    MachineProfile machine = named_profile("rtx4090");
    machine.disk_read_bps /= 64;
    machine.disk_write_bps /= 64;
    return machine;
  }
  // The host has room for what the optimizer needs with moments of this type.
  void give_host(DType moments) {
    PlanQuestion other = question;
    other.options.offload.states_dtype = moments;
    question.budgets.host = planner.plan(other).peak(Tier::kHost);
  }
  // The device has room for this question, and no other tier has any.
  void give_device_alone(PlanQuestion other) {
    other.budgets = {};
    question.budgets.device = planner.plan(other).memory.of(Tier::kDevice).need();
    question.budgets.host = question.budgets.nvme = 1;
  }
  // The host has room for gradients in bf16 and moments of this type, and nothing else has.
  void give_host_narrow_gradients(DType moments) {
    question.options.offload.gradients = Tier::kHost;
    question.options.recompute.mode = RecomputeMode::kFull;
    PlanQuestion narrow = question;
    narrow.options.offload.gradients_dtype = DType::kBFloat16;
    narrow.options.offload.states_dtype = moments;
    narrow.options.train.accumulation_order = AccumulationOrder::kLayer;
    const RunPlan plan = planner.plan(narrow);
    question.budgets.device = plan.memory.of(Tier::kDevice).need();
    question.budgets.host = plan.peak(Tier::kHost);
    question.budgets.nvme = 1;
  }
  SearchResult search() {
    SearchResult result = suggest(planner, question);
    suggest_bf16_states(planner, question, {}, result);
    return result;
  }
  Planner planner{machine()};
  PlanQuestion question{small_options(1), {}};
};

TEST(OtherNumbers, MomentsInBf16WhereTheHostHoldsNoOthers) {
  Card card;
  card.give_host(DType::kBFloat16);
  SearchResult result = card.search();
  ASSERT_TRUE(result.any_fits);
  for (const Suggestion& s : result.suggestions) EXPECT_FALSE(has(s, kMoments));
  const auto narrow = std::ranges::find(result.others, "bf16 moments", &Suggestion::with);
  ASSERT_NE(narrow, result.others.end()) << suggestions_text(result);
  EXPECT_TRUE(has(*narrow, kMoments));
  for (const Suggestion& other : result.others) {  // gradients in bf16 leave room for states too
    EXPECT_TRUE(other.plan.fits());
    EXPECT_LE(other.plan.time.step_s, 0.9 * result.suggestions.front().plan.time.step_s);
    EXPECT_EQ(card.planner.plan({other.options, card.question.budgets}).time.step_s,
              other.plan.time.step_s);
  }
  EXPECT_NE(suggestions_text(result).find("\nwith bf16 moments (other numbers):\n"),
            std::string::npos)
      << suggestions_text(result);
}

TEST(OtherNumbers, MomentsInBf16WhereNothingElseFits) {
  Card card;
  card.give_host(DType::kBFloat16);
  card.question.budgets.nvme = 1;
  const SearchResult result = card.search();
  EXPECT_FALSE(result.any_fits);
  ASSERT_EQ(result.others.size(), 1U) << suggestions_text(result);
  EXPECT_TRUE(result.others.front().plan.fits());
}

// A card that holds all with moments in bf16, and not in fp32.
TEST(OtherNumbers, MomentsInBf16OnTheDevice) {
  Card card;
  PlanQuestion narrow = card.question;
  narrow.options.offload.optimizer = Tier::kDevice;
  narrow.options.offload.states_dtype = DType::kBFloat16;
  card.give_device_alone(narrow);
  const SearchResult result = card.search();
  EXPECT_FALSE(result.any_fits) << suggestions_text(result);
  ASSERT_FALSE(result.others.empty()) << suggestions_text(result);
  const Suggestion& other = result.others.front();
  EXPECT_TRUE(has(other, kMoments) && !has(other, kGradients));
  EXPECT_EQ(other.options.offload.optimizer, Tier::kDevice);
  EXPECT_TRUE(other.plan.fits());
}

TEST(OtherNumbers, GradientsInBf16OnTheDevice) {
  Card card;
  PlanQuestion narrow = card.question;
  narrow.options.zero.stage = 3;
  narrow.options.offload.optimizer = Tier::kDevice;
  narrow.options.offload.gradients_dtype = DType::kBFloat16;
  narrow.options.train.accumulation_order = AccumulationOrder::kLayer;
  narrow.options.recompute.mode = RecomputeMode::kFull;
  card.give_device_alone(narrow);
  const SearchResult result = card.search();
  EXPECT_FALSE(result.any_fits) << suggestions_text(result);
  const auto found = std::ranges::find_if(
      result.others, [](const Suggestion& s) { return has(s, kGradients) && !has(s, kMoments); });
  ASSERT_NE(found, result.others.end()) << suggestions_text(result);
  EXPECT_EQ(found->options.offload.optimizer, Tier::kDevice);
  EXPECT_TRUE(found->plan.fits());
}

// A card that holds all where blocks are updated in the backward, and nothing else.
TEST(OtherNumbers, NoClipWhereNothingElseFits) {
  PlanQuestion question{small_options(1), {}};
  EngineOptions& options = question.options;
  options.model.on_gpu = true;
  options.model.layers = 16;
  options.model.hidden = 512;
  options.model.heads = 8;
  options.train.dtype = DType::kBFloat16;
  options.train.global_batch = options.train.micro_batch = 1;
  options.recompute.mode = RecomputeMode::kFull;
  Planner planner(Card::machine());
  PlanQuestion unclipped = question;
  unclipped.options.train.clip = 0;
  ASSERT_TRUE(planner.shape_of(unclipped.options).shape.updates_in_backward);
  question.budgets.device = planner.plan(unclipped).memory.of(Tier::kDevice).need();
  question.budgets.host = question.budgets.nvme = 1;
  SearchResult result = suggest(planner, question);
  EXPECT_FALSE(result.any_fits);
  suggest_unclipped(planner, question, {}, result);
  ASSERT_EQ(result.others.size(), 1U) << suggestions_text(result);
  const Suggestion& other = result.others.front();
  EXPECT_TRUE(has(other, {"train.clip", "0"})) << suggestions_text(result);
  EXPECT_TRUE(other.plan.fits());
  EXPECT_NE(suggestions_text(result).find("\nwith train.clip 0 (other numbers):\n"),
            std::string::npos);
  // Not of a run that has no clip, nor on CPUs.
  for (EngineOptions* of : {&unclipped.options, &options}) {
    if (of == &options) options.model.on_gpu = false;
    SearchResult none = result;
    none.others.clear();
    suggest_unclipped(planner, {*of, question.budgets}, {}, none);
    EXPECT_TRUE(none.others.empty());
  }
}

// Eight cards behind a slow wire.
TEST(OtherNumbers, ReductionsInBf16WhereTheWireTakesTheTime) {
  PlanQuestion question{small_options(8), {}};
  question.options.model.on_gpu = true;
  question.options.train.global_batch = 16;
  MachineProfile machine = named_profile("rtx4090");
  machine.comm_bps /= 1e3;
  Planner planner(machine);
  const SearchResult none = suggest(planner, question, {.meshes = false});
  ASSERT_TRUE(none.any_fits);
  SearchResult result = none;
  suggest_bf16_reductions(planner, question, {}, result);
  ASSERT_EQ(result.others.size(), 1U) << suggestions_text(result);
  const Suggestion& other = result.others.front();
  EXPECT_TRUE(has(other, {"zero.reduce_dtype", "bf16"})) << suggestions_text(result);
  EXPECT_EQ(planner.plan({other.options, question.budgets}).time.step_s, other.plan.time.step_s);
  EXPECT_NE(suggestions_text(result).find("\nwith bf16 reductions (other numbers):\n"),
            std::string::npos);
  // Not of a run that has them, nor of fp32, nor of a rank alone.
  const auto has_none = [&](PlanQuestion other_question, SearchResult found) {
    suggest_bf16_reductions(planner, other_question, {}, found);
    return found.others.empty();
  };
  PlanQuestion chosen = question;
  chosen.options.zero.reduce_dtype = DType::kBFloat16;
  EXPECT_TRUE(has_none(chosen, none));
  SearchResult of_fp32 = none;
  of_fp32.suggestions.front().options.train.dtype = DType::kFloat32;
  EXPECT_TRUE(has_none(question, of_fp32));
  SearchResult alone = none;
  alone.suggestions.front().options.dp = 1;
  EXPECT_TRUE(has_none(question, alone));
}

TEST(OtherNumbers, NoneThatGainLittleOrThatTheRunHasAlready) {
  Card roomy;
  roomy.give_host(DType::kFloat32);
  EXPECT_EQ(roomy.search().others.size(), 0U);
  Card chosen;
  chosen.give_host(DType::kBFloat16);
  chosen.question.options.offload.states_dtype = DType::kBFloat16;
  EXPECT_EQ(chosen.search().others.size(), 0U);
}

TEST(OtherNumbers, GradientsInBf16WhereTheHostHoldsNoOthers) {
  Card card;
  card.give_host_narrow_gradients(DType::kFloat32);
  const SearchResult result = card.search();
  EXPECT_FALSE(result.any_fits) << suggestions_text(result);
  const auto other = std::ranges::find(result.others, "bf16 gradients", &Suggestion::with);
  ASSERT_NE(other, result.others.end()) << suggestions_text(result);
  EXPECT_TRUE(has(*other, kGradients));
  EXPECT_FALSE(has(*other, kMoments));
  EXPECT_TRUE(other->plan.fits());
  EXPECT_TRUE(stores_complete_gradients(other->options));
  EXPECT_NE(suggestions_text(result).find("\nwith bf16 gradients (other numbers):\n"),
            std::string::npos);
  // Of a run that has them already, or whose gradients need fp32, none is found.
  EngineOptions& options = card.question.options;
  options.train.dtype = DType::kFloat16;
  for (const Suggestion& s : card.search().others) EXPECT_FALSE(has(s, kGradients));
  options.train.dtype = DType::kBFloat16;
  options.offload.gradients_dtype = DType::kBFloat16;
  options.train.accumulation_order = AccumulationOrder::kLayer;
  for (const Suggestion& s : card.search().others) EXPECT_FALSE(has(s, kGradients));
}

TEST(OtherNumbers, BothInBf16WhereTheHostHoldsNeitherAlone) {
  Card card;
  card.give_host_narrow_gradients(DType::kBFloat16);
  const SearchResult result = card.search();
  EXPECT_FALSE(result.any_fits) << suggestions_text(result);
  ASSERT_EQ(result.others.size(), 1U) << suggestions_text(result);
  const Suggestion& both = result.others.front();
  EXPECT_TRUE(has(both, kMoments) && has(both, kGradients));
  EXPECT_TRUE(both.plan.fits());
  EXPECT_NE(suggestions_text(result).find("\nwith bf16 moments and gradients (other numbers):\n"),
            std::string::npos);
}

// The search for the fastest never rounds what the host still adds to.
TEST(OtherNumbers, SuggestionsStoreCompleteGradients) {
  Card card;
  card.question.options.offload.gradients = Tier::kHost;
  card.question.options.offload.gradients_dtype = DType::kBFloat16;
  card.question.options.train.accumulation_order = AccumulationOrder::kLayer;
  const SearchResult result = suggest(card.planner, card.question);
  ASSERT_TRUE(result.any_fits);
  for (const Suggestion& s : result.suggestions) {
    EXPECT_TRUE(stores_complete_gradients(s.options)) << suggestions_text(result);
  }
}

TEST(OtherNumbers, Bf16OnAGpuOnly) {
  EngineOptions options = small_options(1);
  options.train.dtype = DType::kFloat32;
  options.model.on_gpu = true;
  MachineProfile machine = named_profile("h100-sxm");
  machine.gemm_flops.fp32 /= 1e4;  // so that products of a small model take the time
  Planner planner(machine);
  PlanQuestion question{options, {}};
  SearchResult result = suggest(planner, question);
  suggest_bf16(machine, question, {}, result);
  ASSERT_EQ(result.others.size(), 1U) << suggestions_text(result);
  EXPECT_TRUE(has(result.others.front(), {"train.dtype", "bf16"}));
  result.others.clear();
  question.options.model.on_gpu = false;
  suggest_bf16(machine, question, {}, result);
  EXPECT_EQ(result.others.size(), 0U);
}

}  // namespace
}  // namespace sluice
