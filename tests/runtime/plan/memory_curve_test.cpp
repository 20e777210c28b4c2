#include "runtime/plan/memory_curve.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/runtime/plan/small.hpp"

namespace sluice {
namespace {

using testing::small_options;

const MemoryPoint& highest(const MemoryCurve& curve) {
  return *std::max_element(
      curve.points.begin(), curve.points.end(),
      [](const MemoryPoint& a, const MemoryPoint& b) { return a.total < b.total; });
}

std::int64_t sum(const TagBytes& tags) {
  std::int64_t bytes = 0;
  for (const std::int64_t b : tags) bytes += b;
  return bytes;
}

// One tensor of 100 bytes with 7 bytes of workspace, freed at the end of the next operation.
Program two_operations() {
  Program program;
  program.states.rows = {{.tag = Tag::kMaster, .elems = 250}};
  program.arena_bytes = 64;
  program.buffers = {{.tag = Tag::kActivations, .bytes = 100},
                     {.tag = Tag::kGatheredParameters, .bytes = 60, .in_arena = true}};
  program.ops.resize(3);
  program.ops[0].lane = Lane::kComm;
  program.ops[0].live = {1};
  program.ops[1].live = {0};
  program.ops[1].workspace_bytes = 7;
  program.ops[2].dead_before = {1};
  program.ops[2].dead_after = {0};
  return program;
}

TEST(MemoryCurve, SaysWhatIsHeldWhen) {
  const Program program = two_operations();
  const MemoryCurve curve = memory_curve(program, {{0, 2}, {2, 3}, {3, 5}}, Tier::kDevice);
  const std::vector<std::pair<double, std::int64_t>> expected{{0, 1064}, {0, 1064}, {2, 1171},
                                                              {3, 1164}, {3, 1164}, {5, 1064}};
  ASSERT_EQ(curve.points.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_DOUBLE_EQ(curve.points[i].at_s, expected[i].first) << i;
    EXPECT_EQ(curve.points[i].total, expected[i].second) << i;
  }
  const auto of = [&](std::size_t point, Tag tag) {
    return curve.points[point].by_tag[static_cast<std::size_t>(tag)];
  };
  EXPECT_EQ(of(0, Tag::kGatheredParameters), 0);
  EXPECT_EQ(of(1, Tag::kGatheredParameters), 60);  // from where it is issued, though it runs to 2
  EXPECT_EQ(of(2, Tag::kWorkspace), 7);
  EXPECT_EQ(of(3, Tag::kWorkspace), 0);
  EXPECT_EQ(of(4, Tag::kGatheredParameters), 0);
  EXPECT_EQ(of(5, Tag::kMaster), 1000);
  EXPECT_FALSE(curve.thinned);
}

TEST(MemoryCurve, ItsPeakIsTheMemoryModelsByTag) {
  Planner planner(named_profile("cpu"));
  for (const Tier away : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
    for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull}) {
      EngineOptions options = small_options(3);
      options.zero.stage = 3;
      options.recompute.mode = mode;
      options.offload.optimizer = options.offload.gradients = options.offload.parameters = away;
      if (mode == RecomputeMode::kFull) options.offload.activations = away;
      const RunPlan plan = planner.plan({options, {}});
      for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
        const MemoryReport report = add_up(plan.program, tier);
        for (const std::size_t most : {std::size_t{1'000'000}, std::size_t{20}, std::size_t{2}}) {
          const MemoryCurve curve = memory_curve(plan.program, plan.time.timeline, tier, most);
          EXPECT_EQ(highest(curve).total, report.peak());
          EXPECT_TRUE(std::any_of(
              curve.points.begin(), curve.points.end(),
              [&](const auto& p) { return p.total == report.peak() && p.by_tag == report.by_tag; }))
              << name_of(tier) << " " << most;
          EXPECT_LE(curve.points.size(), std::max<std::size_t>(most + 2, 4));
          for (std::size_t i = 0; i < curve.points.size(); ++i) {
            if (i > 0) {
              EXPECT_GE(curve.points[i].at_s, curve.points[i - 1].at_s);
            }
            EXPECT_LE(sum(curve.points[i].by_tag), curve.points[i].total);
          }
        }
      }
    }
  }
}

// A step ends as it began: what came has gone.
TEST(MemoryCurve, EndsWhereItBegan) {
  Planner planner(named_profile("h100-sxm"));
  const RunPlan plan = planner.plan({small_options(), {}});
  const MemoryCurve curve = memory_curve(plan.program, plan.time.timeline, Tier::kDevice);
  EXPECT_EQ(curve.points.back().total, curve.points.front().total);
  EXPECT_EQ(curve.points.back().by_tag, curve.points.front().by_tag);
}

TEST(MemoryCurve, ThinnedItKeepsTheHighestOfEachSlice) {
  const Program once = two_operations();
  Program program = once;
  program.ops.clear();
  std::vector<OpInterval> timeline;
  for (int i = 0; i < 1000; ++i) {
    for (const Op& op : once.ops) {
      program.ops.push_back(op);
      program.ops.back().workspace_bytes *= i + 1;
    }
    const double at = i;
    timeline.insert(timeline.end(), {{at, at + 0.5}, {at + 0.5, at + 0.75}, {at + 0.75, at + 1}});
  }
  const MemoryCurve curve = memory_curve(program, timeline, Tier::kDevice, 20);
  EXPECT_TRUE(curve.thinned);
  EXPECT_LE(curve.points.size(), 22U);
  EXPECT_GE(curve.points.size(), 10U);
  EXPECT_EQ(highest(curve).total, 1164 + 7 * 1000);
  EXPECT_EQ(curve.points.front().total, 1164 + 7 * 100);  // of the first hundredfold
}

}  // namespace
}  // namespace sluice
