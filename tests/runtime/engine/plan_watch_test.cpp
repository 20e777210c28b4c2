// Predicted beside measured: the figures of metrics.jsonl, the log's lines, the trace's lanes.
#include "runtime/run/plan_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "runtime/run/peak_rate.hpp"
#include "runtime/run/step_trace.hpp"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One forward of 3 MFLOP and a gather of 4000 bytes that it waits for.
struct Step {
  Step() {
    program.ops.push_back(
        {.kind = OpKind::kGather, .lane = Lane::kComm, .group = 0, .wire_bytes = 4000});
    program.ops.push_back({.kind = OpKind::kForward, .unit = 0, .waits = {0}, .flops = 3e6});
    shape.dp = 2;
    shape.groups.resize(1);
    shape.units.resize(2);
    memory.tiers[0].peak = 1000;
    memory.tiers[2].peak = 400;
  }
  Program program;
  StepShape shape;
  MemoryPlan memory;
};

RunRates rates_of_run() {
  RunRates rates;
  rates.rates.flops = 1e9;
  rates.rates.comm_bps = 4e6;
  rates.origin = "a test";
  return rates;
}

StepRecord record_of(double step_ms) {
  StepRecord record;
  record.step_ms = step_ms;
  record.memory = {.device_peak = 1100, .host_peak = 7, .pinned = 0, .nvme = 400};
  return record;
}

// Measured at a fifteenth of what the machine can, as one that was busy at start.
TEST(PeakRate, NoShareIsAboveAll) {
  PeakRate peak(1e9);
  EXPECT_DOUBLE_EQ(peak.share(5e8), 0.5);
  EXPECT_DOUBLE_EQ(peak.share(15e9), 1);
  EXPECT_DOUBLE_EQ(peak.share(5e9), 1.0 / 3);
  EXPECT_DOUBLE_EQ(peak.flops_per_s(), 15e9);
  EXPECT_EQ(PeakRate(0).share(0), 0);
}

TEST(PlanWatch, ComparesFromTheThirdStepAndSaysItOnce) {
  const Step step;
  PlanWatch watch(step.program, step.shape, step.memory, rates_of_run(), 0);
  const double planned_ms = watch.predicted()->step_s * 1e3;
  EXPECT_GE(planned_ms, 4);  // 1 ms on the wire, then 3 ms of products
  const CountedTiers counted{.device = true, .host = false, .nvme = true};
  for (int i = 1; i <= 5; ++i) {
    StepRecord record = record_of(planned_ms * 1.5);
    const std::vector<std::string> lines = watch.compare(record, counted);
    ASSERT_EQ(record.plan_error.has_value(), i >= 3) << i;
    EXPECT_EQ(lines.empty(), i != 3) << i;
    if (i < 3) continue;
    EXPECT_NEAR(*record.plan_error->device, 0.1, 1e-12);
    EXPECT_FALSE(record.plan_error->host.has_value());  // not counted
    EXPECT_EQ(*record.plan_error->nvme, 0);
    EXPECT_NEAR(*record.plan_error->step_ms, 0.5, 1e-12);
    if (i > 3) continue;
    EXPECT_THAT(lines, ElementsAre("device peak: planned 1000 B, measured 1.07 KiB (+10.00 %)",
                                   "nvme peak: planned 400 B, measured 400 B (+0.00 %)",
                                   HasSubstr("(+50.00 %); rates: a test")));
  }
}

TEST(PlanWatch, WithoutRatesNothingIsSaidOfTime) {
  const Step step;
  PlanWatch watch(step.program, step.shape, step.memory, std::nullopt, 1e9);
  EXPECT_EQ(watch.predicted(), nullptr);
  StepRecord record;
  for (int i = 0; i < 3; ++i) {
    record = record_of(5);
    EXPECT_LE(watch.compare(record, {.device = true}).size(), 1U);
  }
  EXPECT_TRUE(record.plan_error->device.has_value());
  EXPECT_FALSE(record.plan_error->step_ms.has_value());
}

// A tier that the plan has nothing on, and that has something: no error can be given of it.
TEST(PlanWatch, WhatWasNotPlannedHasNoRelativeError) {
  const Step step;
  PlanWatch watch(step.program, step.shape, step.memory, std::nullopt, 0);
  StepRecord record;
  std::vector<std::string> lines;
  for (int i = 0; i < 3; ++i) lines = watch.compare(record = record_of(5), {.host = true});
  EXPECT_FALSE(record.plan_error->host.has_value());
  EXPECT_THAT(lines, ElementsAre("host peak: planned 0 B, measured 7 B"));
}

// Of every rank the device's, the host's and NVMe's planned and measured bytes.
std::vector<double> peaks(std::initializer_list<PeakValues> ranks) {
  std::vector<double> all;
  for (const PeakValues& rank : ranks) all.insert(all.end(), rank.begin(), rank.end());
  return all;
}

TEST(OtherPeaks, RanksLikeTheFirstAreNotNamed) {
  const PeakValues rank = {2000, 2000, -1, -1, 0, 0};
  const PeakValues near = {2000, 2010, -1, -1, 0, 0};
  const OtherPeaks said = other_peaks(peaks({rank, near, rank}), 0.03);
  EXPECT_TRUE(said.fullest.empty());
  EXPECT_TRUE(said.off_plan.empty());
}

TEST(OtherPeaks, TheFullestAndTheFurthestFromItsPlanAreNamed) {
  const OtherPeaks said = other_peaks(
      peaks({{1000, 1000, 50, 50, 10, 10}, {4000, 4000, 50, 40, 0, 7}, {3000, 3300, 50, 50, 0, 5}}),
      0.03);
  EXPECT_THAT(said.fullest, ElementsAre("device peak of rank 1, the fullest of 3 ranks: planned "
                                        "3.91 KiB, measured 3.91 KiB (+0.00 %)"));
  EXPECT_THAT(said.off_plan,
              ElementsAre("device peak of rank 2: planned 2.93 KiB, measured 3.22 KiB (+10.00 %)",
                          "host peak of rank 1: planned 50 B, measured 40 B (-20.00 %)"));
}

TEST(OtherPeaks, ARankIsNamedOnce) {
  const OtherPeaks said =
      other_peaks(peaks({{1000, 1000, -1, -1, -1, -1}, {1000, 1500, -1, -1, -1, -1}}), 0.03);
  EXPECT_TRUE(said.fullest.empty());
  EXPECT_THAT(said.off_plan, ElementsAre("device peak of rank 1, the fullest of 2 ranks: planned "
                                         "1000 B, measured 1.46 KiB (+50.00 %)"));
}

// The log compares rank 0's peaks by itself, so they hide no other rank's.
TEST(OtherPeaks, TheFirstRankIsNotNamed) {
  const OtherPeaks said =
      other_peaks(peaks({{1000, 2000, -1, -1, -1, -1}, {1000, 1500, -1, -1, -1, -1}}), 0.03);
  EXPECT_TRUE(said.fullest.empty());
  EXPECT_THAT(said.off_plan, ElementsAre(HasSubstr("device peak of rank 1: ")));
}

TEST(OtherPeaks, HaveValuesOfCountedTiers) {
  const Step step;
  const StepRecord record = record_of(5);
  EXPECT_THAT(peak_values(step.memory, record.memory, {.device = true, .nvme = true}),
              ElementsAre(1000, 1100, -1, -1, 400, 400));
}

TEST(PlanWatch, ProductsRunAtAShareOfWhatWasMeasured) {
  const Step step;
  RunRates rates = rates_of_run();
  rates.share_of_measured = 0.5;
  PlanWatch slow(step.program, step.shape, step.memory, rates, 2e8);
  PlanWatch fast(step.program, step.shape, step.memory, rates, 2e9);
  EXPECT_NEAR(slow.predicted()->step_s - fast.predicted()->step_s, 30e-3 - 3e-3, 1e-6);
}

TEST(StepTrace, PredictedLanesAreAProcessOfTheirOwn) {
  Step step;
  step.program.ops.push_back({.kind = OpKind::kReadStates, .lane = Lane::kDisk, .moved_bytes = 9});
  step.program.ops.push_back({.kind = OpKind::kWriteStates, .lane = Lane::kDisk});
  step.program.ops.push_back({.kind = OpKind::kRelease});
  TimeReport predicted;
  predicted.timeline = {{0, 0.5}, {0.5, 2}, {0, 1}, {0.25, 1}, {2, 2}};
  const std::vector<TraceEvent> events = predicted_events(step.program, predicted);
  ASSERT_EQ(events.size(), 4U);
  std::vector<std::string> lanes;
  for (const TraceEvent& event : events) {
    EXPECT_EQ(event.rank, kPredictedProcess);
    lanes.push_back(event.lane);
  }
  EXPECT_THAT(lanes, ElementsAre("comm", "compute", "disk read", "disk write"));
  EXPECT_DOUBLE_EQ(events[1].start_us, 0.5e6);
  EXPECT_DOUBLE_EQ(events[1].duration_us, 1.5e6);
  EXPECT_EQ(events[0].name, describe(step.program.ops[0]));
}

// The measured step begins where the predicted one does.
TEST(StepTrace, BothBeginTogether) {
  const Step step;
  TimeReport predicted;
  predicted.timeline = {{0, 1e-3}, {1e-3, 4e-3}};
  const std::vector<OpTiming> timings{
      {.wait_us = 900, .begin_us = 900, .end_us = 910, .lane_begin_us = 910, .lane_end_us = 1500},
      {.wait_us = 910, .begin_us = 1500, .end_us = 5000}};
  const std::string path = ::testing::TempDir() + "plan_watch_test_trace.json";
  write_step_trace(path, step.program, timings, &predicted);
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, HasSubstr(R"("cat":"comm","pid":1,"tid":2,"ts":0.0,"dur":1000.0)"));
  EXPECT_THAT(text, HasSubstr(R"("cat":"comm","pid":0,"tid":2,"ts":10.0,"dur":590.0)"));
  EXPECT_THAT(text, HasSubstr(R"("cat":"compute","pid":0,"tid":0,"ts":600.0,"dur":3500.0)"));
  EXPECT_THAT(text, HasSubstr(R"("name":"wait for)"));
  std::filesystem::remove(path);
}

TEST(DevicePeak, IsHeldToTheBudgetWhereThePlanWasNotAll) {
  StepPlan plan;
  plan.shape = Step().shape;
  MemoryPlan memory;
  memory.tiers[0] = {.by_tag = {{"activations", 700}}, .peak = 1000, .budget = 1500};
  EXPECT_NO_THROW(check_device_peak(plan, memory, 1500));
  try {
    check_device_peak(plan, memory, 1501);
    FAIL() << "a byte more was let through";
  } catch (const BudgetError& error) {
    EXPECT_THAT(error.what(), HasSubstr("memory.device: a rank has taken 1.47 KiB, 1 B more"));
    EXPECT_THAT(error.what(), HasSubstr("501 B were beside the plan"));
    EXPECT_THAT(error.what(), HasSubstr("largest: activations 700 B"));
    EXPECT_THAT(error.what(), HasSubstr("--set memory.device=<more>, --set zero.stage=3"));
  }
  memory.tiers[0].budget = 0;  // no limit
  EXPECT_NO_THROW(check_device_peak(plan, memory, 1501));
}

TEST(DevicePeak, AboveWhatIsFreeOnTheCardIsRefused) {
  StepPlan plan;
  plan.shape = Step().shape;
  MemoryPlan memory;
  memory.tiers[0] = {.by_tag = {{"activations", 700}}, .peak = 1000, .budget = 0};
  EXPECT_NO_THROW(check_card(plan, memory, 1000, 2));
  try {
    check_card(plan, memory, 999, 2);
    FAIL() << "a byte less was let through";
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.exit_code(), 3);
    EXPECT_THAT(error.what(), HasSubstr("GPU 2: a step needs 1000 B a rank, 1 B more than the "
                                        "999 B that are free on the card."));
    EXPECT_THAT(error.what(), HasSubstr("largest: activations 700 B"));
    EXPECT_THAT(error.what(), HasSubstr("to need less: --set zero.stage=3"));
  }
}

// No setting enlarges a card, and an engine without an optimizer has no states to move.
TEST(DevicePeak, AdviceForAnEngineWithoutAnOptimizer) {
  StepPlan plan;
  plan.shape = Step().shape;
  plan.shape.dp = 1;
  plan.shape.dtype = DType::kBFloat16;
  plan.shape.frozen = true;
  plan.decoding = plan.shape;
  MemoryPlan memory;
  memory.tiers[0] = {.by_tag = {{"parameters", 700}}, .peak = 1000, .budget = 900};
  const auto advice = [&](const auto& check) -> std::string {
    try {
      check();
    } catch (const BudgetError& error) {
      const std::string text = error.what();
      return text.substr(text.find("to need less: "));
    }
    return "";
  };
  EXPECT_EQ(advice([&] { check_card(plan, memory, 999, 0); }),
            "to need less: --set offload.parameters=host, --set model.seq=<fewer>");
  EXPECT_EQ(advice([&] { check_budget(plan, memory); }),
            "to need less: --set offload.parameters=host, --set model.seq=<fewer>, --set "
            "memory.device=<more>");
  plan.decoding.reset();
  EXPECT_EQ(advice([&] { check_card(plan, memory, 999, 0); }),
            "to need less: --set offload.parameters=host, --set train.micro_batch=<fewer>");
}

std::string advice_on(const StepPlan& plan, Tier tier, const std::string& smaller_step = "") {
  MemoryPlan memory;
  memory.budgets.smaller_step = smaller_step;
  memory.tiers[static_cast<std::size_t>(tier)] = {
      .by_tag = {{"moments", 700}}, .peak = 1000, .budget = 900};
  try {
    check_budget(plan, memory);
  } catch (const BudgetError& error) {
    const std::string text = error.what();
    return text.substr(text.find("to need less: "));
  }
  return "";
}

// A key at its limit, or one that the plan does not read, is no advice.
TEST(DevicePeak, AdviceCanBeFollowed) {
  StepPlan plan;
  plan.shape.dtype = DType::kBFloat16;
  plan.shape.recompute = true;
  plan.shape.stage = 3;
  plan.shape.dp = 2;
  plan.shape.bucket_bytes = 1;  // less than the least that a reduction has
  plan.shape.prefetch_units = 0;
  plan.shape.placement.optimizer = Tier::kHost;
  plan.shape.placement.activations = Tier::kHost;
  plan.shape.groups = {{.elems = 64, .shard_elems = 32, .resident = true}};
  EXPECT_EQ(advice_on(plan, Tier::kDevice, "--set model.seq=<fewer>"),
            "to need less: --set offload.gradients=host, --set model.seq=<fewer>, --set "
            "memory.device=<more>");
  plan.shape.groups.front().resident = false;
  plan.shape.bucket_bytes = 1 << 20;
  EXPECT_EQ(
      advice_on(plan, Tier::kDevice),
      "to need less: --set offload.gradients=host, --set offload.parameters=host, --set "
      "zero.bucket_bytes=<less>, --set train.micro_batch=<fewer>, --set memory.device=<more>");
  plan.shape.placement.device_fraction = 0.5;  // gradients and parameters cannot move beside it
  EXPECT_EQ(advice_on(plan, Tier::kDevice).find("offload.gradients"), std::string::npos);
}

TEST(HostPeak, AdviceCanBeFollowed) {
  StepPlan plan;
  plan.shape.groups = {{.elems = 64, .shard_elems = 64, .add_replicas = true}};
  Placement& placement = plan.shape.placement;
  placement.optimizer = placement.gradients = Tier::kHost;
  placement.chunk_elems = kChunkAlignElems;
  placement.chunk_slots = 1;
  EXPECT_EQ(advice_on(plan, Tier::kHost),
            "to need less: --set offload.optimizer=nvme, --set memory.host=<more>");
  plan.shape.frozen = true;  // generates: no optimizer, no chunks
  placement = {.parameters = Tier::kHost};
  EXPECT_EQ(advice_on(plan, Tier::kHost),
            "to need less: --set offload.parameters=nvme, --set memory.host=<more>");
  placement = {.parameters = Tier::kNvme};
  EXPECT_EQ(advice_on(plan, Tier::kNvme),
            "to need less: --set offload.parameters=host, --set memory.nvme=<more>");
}

// In the launcher, before any rank asks what is free.
TEST(DevicePeak, AboveAllThatTheCardHasIsRefusedWithoutABudget) {
  StepPlan plan;
  plan.shape = Step().shape;
  MemoryPlan memory;
  memory.tiers[0] = {.by_tag = {{"activations", 700}}, .peak = 1000, .nccl = 500, .card = 1000};
  EXPECT_TRUE(memory.fits());  // NCCL's estimate is too high a bound to refuse a run by
  EXPECT_NO_THROW(check_budget(plan, memory));
  memory.tiers[0].card = 999;
  EXPECT_FALSE(memory.fits());
  try {
    check_budget(plan, memory);
    FAIL() << "a byte less was let through";
  } catch (const BudgetError& error) {
    EXPECT_THAT(error.what(), HasSubstr("GPU memory: a step needs 1000 B a rank, 1 B more than "
                                        "the 999 B of the card.\n  largest: activations 700 B"));
    EXPECT_THAT(error.what(), HasSubstr("to need less: --set zero.stage=3"));
  }
}

// libtorch's words of a full card, and of a process at its limit, which is memory.device.
TEST(PlanWatch, OutOfMemoryNamesWhatLimitsAndNoSettingThatIsRefused) {
  using ::testing::Not;
  StepPlan plan;
  plan.shape.recompute = true;
  MemoryPlan memory;
  memory.tiers[0].peak = 1000;
  memory.tiers[0].by_tag = {{"activations", 700}};
  const std::string full =
      "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has 0 bytes free.";
  const std::string hint =
      " If reserved but unallocated memory is large try setting "
      "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\nframe #0";
  const std::string of_card = out_of_device_memory(plan, memory, full + hint).what();
  EXPECT_THAT(of_card, HasSubstr(full + "\n  nvidia-smi lists what else uses the card"
                                        "\n  largest: activations 700 B"));
  EXPECT_THAT(of_card, Not(HasSubstr("memory.device")));
  const std::string of_budget =
      out_of_device_memory(plan, memory, full + " 785.00 MiB allowed; Of them" + hint).what();
  EXPECT_THAT(of_budget, HasSubstr("--set train.micro_batch=<fewer>, --set memory.device=<more>"));
  EXPECT_THAT(of_budget, Not(HasSubstr("nvidia-smi")));
  EXPECT_THAT(of_budget + of_card, Not(HasSubstr("expandable")));
  EXPECT_NO_THROW(check_card(plan, memory, 1000, 0));
  try {
    check_card(plan, memory, 999, 0);
    FAIL() << "a byte less was let through";
  } catch (const BudgetError& error) {
    EXPECT_THAT(error.what(), HasSubstr("\n  nvidia-smi lists what else uses the card"));
  }
}

}  // namespace
}  // namespace sluice
