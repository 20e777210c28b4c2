// A checkpoint of any layout on any other: mesh, ZeRO stage and tiers; a tied table of 50,257 rows
// that no number of ranks divides.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <span>

#include "tests/runtime/engine/saved_world.hpp"
#include "tests/runtime/observe/temporary_folder.hpp"
#include "tests/slow_tests.hpp"

namespace sluice::testing {
namespace {

// From each layout to each: the states are the same bits, and the losses those of the first run.
class Grid : public ::testing::Test {
 protected:
  static constexpr int kStepsThere = 5;

  // To each of `there`, which are numbers of layouts, from layout `from`.
  void resume_from(std::size_t from, const std::vector<std::size_t>& there) {
    const std::string dir = folder("from" + std::to_string(from));
    const WorldResult whole = train_part(large_vocabulary(kLayouts[from]),
                                         {.steps = 2, .save = dir, .steps_behind = kStepsThere});
    const auto states = states_in(dir);
    for (const std::size_t to : there) {
      SCOPED_TRACE("from layout " + std::to_string(from) + " to " + std::to_string(to));
      const std::string again = folder("again");  // what was loaded, before a step
      const WorldResult resumed =
          train_part(large_vocabulary(kLayouts[to]),
                     {.resume = dir, .save = again, .steps_behind = kStepsThere});
      expect_same_states(states_in(again), states);
      std::filesystem::remove_all(again);
      ASSERT_EQ(resumed.losses.size(), std::size_t{kStepsThere});
      for (std::size_t i = 0; i < resumed.losses.size(); ++i) {
        if (same_mesh(kLayouts[from], kLayouts[to])) {
          EXPECT_EQ(resumed.losses[i], whole.losses[i + 2]) << "step " << i + 3;
        }
        // As between meshes that train from the start (engine_equality, engine_mesh).
        EXPECT_NEAR(resumed.losses[i] / whole.losses[i + 2], 1.0, 2e-5) << "step " << i + 3;
      }
      if (same_mesh(kLayouts[from], kLayouts[to]))
        expect_same_states(resumed.weights, whole.weights);
    }
    std::filesystem::remove_all(dir);
  }

  // Wherever the states live, and however they are cut.
  static bool same_mesh(const Layout& a, const Layout& b) {
    return a.dp == b.dp && a.parallel.tensor == b.parallel.tensor &&
           a.parallel.pipeline == b.parallel.pipeline;
  }

  using States = std::map<std::string, std::vector<float>>;
  static void expect_same_states(const States& a, const States& b) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, values] : a) {
      ASSERT_TRUE(b.contains(name)) << name;
      EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(values)),
                                     std::as_bytes(std::span(b.at(name)))))
          << name;
    }
  }

  std::string folder(const std::string& name) const { return (folder_.path() / name).string(); }

  EngineOptions large_vocabulary(const Layout& layout) const {
    EngineOptions large = options_of(layout, folder("swap"));
    large.model = {.layers = 1, .hidden = 8, .heads = 2, .vocab = 50257, .seq = 4};
    large.optimizer.lr = 1e-3;
    return large;
  }

  const std::vector<Layout> kLayouts{
      {1, 0},
      {2, 0},
      {3, 1},
      {4, 3},
      {2, 3, Tier::kHost, Tier::kHost, Tier::kHost},
      {3, 3, Tier::kNvme, Tier::kNvme, Tier::kNvme},
      {4, 2, Tier::kHost, Tier::kDevice, Tier::kDevice, 0.3},
      {1, 3, Tier::kNvme, Tier::kHost, Tier::kDevice, 0, 0.5},
      {.dp = 1, .stage = 0, .parallel = {.tensor = 2}},
      {.dp = 2,
       .stage = 2,
       .optimizer = Tier::kHost,
       .gradients = Tier::kHost,
       .parallel = {.tensor = 2, .sequence = true, .pipeline = 2}},
      {.dp = 1, .stage = 1, .parallel = {.pipeline = 3}},
      {.dp = 2,
       .stage = 3,
       .optimizer = Tier::kNvme,
       .parameters = Tier::kNvme,
       .parallel = {.tensor = 2}},
      // The meshes of 9 and 8 again, cut and kept otherwise; and one in two ways.
      {.dp = 2,
       .stage = 3,
       .optimizer = Tier::kNvme,
       .parameters = Tier::kHost,
       .parallel = {.tensor = 2, .sequence = true, .pipeline = 2}},
      {.dp = 1, .stage = 2, .optimizer = Tier::kNvme, .parallel = {.tensor = 2}},
      {.dp = 2, .stage = 0, .parallel = {.pipeline = 2}},
      {.dp = 2,
       .stage = 3,
       .optimizer = Tier::kNvme,
       .parameters = Tier::kNvme,
       .gradients = Tier::kHost,
       .parallel = {.pipeline = 2}},
  };

 private:
  TemporaryFolder folder_;
};

TEST_F(Grid, EveryLayoutResumesOnEveryOtherSampled) {
  resume_from(1, {5});
  resume_from(5, {6, 3});
  resume_from(6, {4});
}

// From a stage that keeps fp16 weights to gathers that round the master weights, and back.
TEST_F(Grid, GoesOnBitForBitWhereGathersRoundMasterWeights) {
  for (const int dp : {1, 3}) {
    const EngineOptions kept = options_of({dp, 2}, folder("swap"), DType::kFloat16);
    EngineOptions rounds = kept;
    rounds.zero.stage = 3;
    rounds.zero.rounds_from = 1;
    const WorldResult whole = train_part(kept, {.steps = 6});
    const std::string first = folder("kept" + std::to_string(dp));
    const std::string second = folder("rounds" + std::to_string(dp));
    (void)train_part(kept, {.steps = 2, .save = first});
    (void)train_part(rounds, {.steps = 2, .resume = first, .save = second});
    WorldResult last = train_part(kept, {.steps = 2, .resume = second});
    last.losses.insert(last.losses.begin(), whole.losses.begin(), whole.losses.begin() + 4);
    last.norms.insert(last.norms.begin(), whole.norms.begin(), whole.norms.begin() + 4);
    expect_same_bits(last, whole, std::to_string(dp) + " ranks");
  }
}

// From whole master weights on the host to remainders on the device and on other tiers, and back;
// moments of both types.
TEST_F(Grid, GoesOnBitForBitWhereMasterWeightsAreSplit) {
  for (const DType moments : {DType::kFloat32, DType::kBFloat16}) {
    EngineOptions whole = options_of({2, 1}, folder("swap"), DType::kBFloat16);
    whole.offload.states_dtype = moments;
    whole.offload.optimizer = Tier::kHost;
    const WorldResult expected = train_part(whole, {.steps = 6});
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
      EngineOptions split = whole;
      split.zero.stage = 3;
      split.offload.optimizer = tier;
      if (tier != Tier::kDevice) split.offload.parameters = Tier::kHost;
      const std::string on =
          std::string(name_of(tier)) + ", moments in " + std::string(name_of(moments));
      const std::string first = folder("whole before " + on);
      const std::string second = folder("split on " + on);
      (void)train_part(whole, {.steps = 2, .save = first});
      (void)train_part(split, {.steps = 2, .resume = first, .save = second});
      WorldResult last = train_part(whole, {.steps = 2, .resume = second});
      const auto before = [](std::vector<double>& numbers, const std::vector<double>& from) {
        numbers.insert(numbers.begin(), from.begin(), from.begin() + 4);
      };
      before(last.losses, expected.losses);
      before(last.norms, expected.norms);
      expect_same_bits(last, expected, on);
    }
  }
}

// fp32 moments of a checkpoint become bf16 alike on every tier.
TEST_F(Grid, MomentsAreRoundedAlikeOnEveryTier) {
  EngineOptions run = options_of({2, 2}, folder("swap"), DType::kBFloat16);
  (void)train_part(run, {.steps = 3, .save = folder("wide")});
  run.offload.states_dtype = DType::kBFloat16;
  std::map<std::string, std::vector<float>> expected;
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
    run.offload.optimizer = tier;
    const std::string saved = folder(std::string(name_of(tier)));
    (void)train_part(run, {.resume = folder("wide"), .save = saved});
    if (tier == Tier::kDevice) expected = states_in(saved);
    EXPECT_EQ(states_in(saved), expected) << name_of(tier);
  }
  EXPECT_NE(states_in(folder("wide")), expected);
}

// A checkpoint has the moments of one replica: those of the others were the same, though rounded.
TEST_F(Grid, ReplicasRoundMomentsAlikeOnTheDevice) {
  EngineOptions run =
      options_of({.dp = 2, .stage = 2, .parallel = {.tensor = 2, .sequence = true, .pipeline = 2}},
                 folder("swap"), DType::kBFloat16);
  run.offload.states_dtype = DType::kBFloat16;
  const std::string saved = folder("saved");
  const WorldResult whole = train_part(run, {.steps = 2, .save = saved, .steps_behind = 2});
  const WorldResult resumed = train_part(run, {.steps = 2, .resume = saved});
  EXPECT_EQ(resumed.losses, std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
  EXPECT_TRUE(resumed.weights == whole.weights);
}

TEST_F(Grid, MeshesResumeOnEachOtherSampled) {
  resume_from(3, {9});
  resume_from(8, {10});
  resume_from(9, {2, 11, 12});
  resume_from(10, {8});
  resume_from(11, {0, 9});
  resume_from(14, {15, 13});
}

TEST_F(Grid, EveryLayoutResumesOnEveryOther) {
  if (!slow_tests()) {
    GTEST_SKIP() << "the whole grid runs with SLUICE_SLOW_TESTS=1";
  }
  std::vector<std::size_t> all(kLayouts.size());
  std::iota(all.begin(), all.end(), 0U);
  for (const std::size_t from : all) resume_from(from, all);
}

}  // namespace
}  // namespace sluice::testing
