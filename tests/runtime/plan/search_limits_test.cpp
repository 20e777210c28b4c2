// What bounds a search beside the budgets of single tiers.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cpu/parallel.hpp"
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

// A card beside a slow drive, and a model with its optimizer there.
struct SlowDrive {
  explicit SlowDrive(int layers) {
    question.options.model.layers = layers;
    question.options.tiers.nvme.queue_depth = 1;
    question.options.offload.chunk_bytes = 16 << 10;
    question.options.offload.optimizer = Tier::kHost;
    on_host = planner.plan(question).peak(Tier::kHost);
    question.options.offload.optimizer = Tier::kNvme;
    plain = planner.plan(question);
    question.budgets.device = plain.memory.of(Tier::kDevice).need();
  }
  static MachineProfile machine() {
    MachineProfile machine = named_profile("rtx4090");
    machine.disk_read_bps *= 1e-3;
    machine.disk_write_bps *= 1e-3;
    return machine;
  }
  Planner planner{machine()};
  PlanQuestion question{small_options(1), {}};
  std::int64_t on_host = 0;  // the host's peak with the optimizer there
  RunPlan plain;             // of the question, without budgets
};

bool keeps_parameters(const EngineOptions& options) {
  return options.offload.parameters == Tier::kDevice;
}

// Where the host has room for some of the states that the device and the host cannot hold, these
// are not moved through the disk.
TEST(SearchLimits, TheHostHoldsWhatItCanOfStatesOnNvme) {
  SlowDrive drive(small_options(1).model.layers);
  auto& [planner, question, on_host, plain] = drive;
  question.budgets.host = (plain.peak(Tier::kHost) + on_host) / 2;
  SearchLimits limits{.most = 50};
  limits.allowed = keeps_parameters;
  const SearchResult result = suggest(planner, question, limits);
  ASSERT_TRUE(result.any_fits) << suggestions_text(result);
  const Suggestion& best = result.suggestions.front();
  const double share = best.options.offload.host_fraction;
  EXPECT_GT(share, 0.3) << suggestions_text(result);
  EXPECT_LT(share, 0.7);
  EXPECT_LT(best.plan.time.step_s, 0.8 * plain.time.step_s);
  EXPECT_LE(best.plan.peak(Tier::kHost), question.budgets.host);
  for (const Suggestion& s : result.suggestions) EXPECT_TRUE(s.plan.fits());
  // A share that is too large becomes one that fits.
  question.options.offload.host_fraction = 0.9;
  ASSERT_GT(planner.plan(question).missing(), 0);
  const SearchResult less = suggest(planner, question, limits);
  ASSERT_TRUE(less.any_fits) << suggestions_text(less);
  EXPECT_EQ(less.suggestions.front().options.offload.host_fraction, share);
}

// The host has room for a half of the optimizer, the device for the other, and nothing else has
// any.
TEST(SearchLimits, TheDeviceHoldsWhatTheHostCannot) {
  SlowDrive drive(16);
  PlanQuestion& question = drive.question;
  question.options.offload.optimizer = Tier::kHost;
  PlanQuestion shared{question.options, {}};
  shared.options.offload.device_fraction = 0.5;
  const RunPlan half = drive.planner.plan(shared);
  question.budgets.device = half.memory.of(Tier::kDevice).need();
  question.budgets.host = half.peak(Tier::kHost);
  for (const std::int64_t nvme : {1L, 0L}) {  // of 0 there is no limit
    question.budgets.nvme = nvme;
    const SearchResult result = suggest(drive.planner, question);
    ASSERT_TRUE(result.any_fits) << suggestions_text(result);
    EXPECT_LE(result.suggestions.front().plan.time.step_s, half.time.step_s);
    EXPECT_EQ(result.suggestions.front().options.offload.optimizer, Tier::kHost)
        << suggestions_text(result);
  }
}

// A slow bus: gathers that begin earlier have more to hide under.
TEST(SearchLimits, ParametersComeFromTheHostAsEarlyAsTheDeviceHasRoom) {
  MachineProfile machine = named_profile("rtx4090");
  machine.h2d_bps *= 1e-2;
  Planner planner(machine);
  PlanQuestion question{small_options(1), {}};
  EngineOptions& options = question.options;
  options.model.layers = 16;
  options.train.global_batch = options.train.micro_batch;
  options.zero.stage = 3;
  options.offload.optimizer = options.offload.parameters = options.offload.gradients = Tier::kHost;
  PlanQuestion ahead = question;
  ahead.options.zero.prefetch_units = 8;
  question.budgets.device = planner.plan(ahead).memory.of(Tier::kDevice).need();
  SearchLimits limits;
  limits.allowed = [](const EngineOptions& tried) {
    return tried.offload.parameters == Tier::kHost && tried.offload.optimizer == Tier::kHost;
  };
  const SearchResult result = suggest(planner, question, limits);
  ASSERT_TRUE(result.any_fits);
  const Suggestion& best = result.suggestions.front();
  EXPECT_GT(best.options.zero.prefetch_units, 1) << suggestions_text(result);
  EXPECT_LT(best.plan.time.step_s, planner.plan(question).time.step_s);
  // A model has so many units to gather ahead, and no more (configs/validate.cpp).
  options.model.layers = 2;
  question.budgets.device = 0;
  for (const Suggestion& s : suggest(planner, question, limits).suggestions) {
    EXPECT_LE(s.options.zero.prefetch_units, 3) << s.plan.time.step_s;
  }
}

// Parameters on the host leave the disk less to do, until the host's and the device's room is
// filled with states. The first five found do not end the search for other placements.
TEST(SearchLimits, EachPlacementIsTriedWithStatesOnTheHost) {
  SlowDrive drive(16);
  PlanQuestion& question = drive.question;
  SearchLimits on_device;
  on_device.allowed = keeps_parameters;
  for (const int percent : {50, 60, 70, 80, 90}) {
    question.budgets.host = drive.on_host * percent / 100;
    const SearchResult some = suggest(drive.planner, question, on_device);
    const SearchResult all = suggest(drive.planner, question, {});
    ASSERT_TRUE(some.any_fits && all.any_fits) << percent;
    EXPECT_LE(all.suggestions.front().plan.time.step_s,
              1.15 * some.suggestions.front().plan.time.step_s)
        << percent << suggestions_text(all) << suggestions_text(some);
  }
}

// Threads plan candidates ahead that a search on one thread may not reach.
TEST(SearchLimits, FindsTheSameOnAnyNumberOfThreads) {
  SlowDrive drive(16);
  const int before = compute_threads();
  for (const int percent : {0, 20, 70}) {
    PlanQuestion question = drive.question;
    question.budgets.host = std::max<std::int64_t>(1, drive.on_host * percent / 100);
    if (percent == 0) question.budgets.nvme = 1;  // nothing fits
    std::vector<std::string> found;
    for (const int threads : {1, 2, 5}) {
      set_compute_threads(threads);
      const SearchResult result = suggest(drive.planner, question, {});
      EXPECT_EQ(result.any_fits, percent != 0);
      EXPECT_GT(result.evaluated, 5);
      found.push_back(suggestions_text(result) + std::to_string(result.evaluated));
    }
    EXPECT_EQ(found, std::vector<std::string>(3, found.front()));
  }
  set_compute_threads(before);
}

}  // namespace
}  // namespace sluice
