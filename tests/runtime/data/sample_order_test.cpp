#include "runtime/data/sample_order.hpp"

#include <algorithm>
#include <numeric>

#include "runtime/data/split_plan.hpp"
#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> epoch_of(const SampleOrder& order, std::int64_t epoch) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < order.samples(); ++i) samples.push_back(order.at(epoch, i));
  return samples;
}

TEST(SampleOrder, EachEpochHoldsEachSampleOnce) {
  for (const std::int64_t size : {1, 2, 3, 4, 5, 16, 17, 1000, 65536, 65537}) {
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1234}, ~std::uint64_t{0}}) {
      for (const std::int64_t epoch : {0, 1, 1000000}) {
        auto samples = epoch_of(SampleOrder(size, seed), epoch);
        std::sort(samples.begin(), samples.end());
        std::vector<std::int64_t> all(static_cast<std::size_t>(size));
        std::iota(all.begin(), all.end(), 0);
        ASSERT_EQ(samples, all) << size << " seed " << seed << " epoch " << epoch;
      }
    }
  }
}

TEST(SampleOrder, EpochsAndSeedsDiffer) {
  const SampleOrder order(1000, 1);
  EXPECT_NE(epoch_of(order, 0), epoch_of(order, 1));
  EXPECT_NE(epoch_of(order, 0), epoch_of(SampleOrder(1000, 2), 0));
  // Nor is one seed's second epoch another's first, as it would be were both just added up.
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    EXPECT_NE(epoch_of(SampleOrder(1000, seed), 1), epoch_of(SampleOrder(1000, seed + 1), 0));
  }
}

TEST(SampleOrder, SmallSizesReachEveryOrder) {
  std::vector<int> seen(6);
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const auto order = epoch_of(SampleOrder(3, seed), 0);
    ++seen[static_cast<std::size_t>(order[0] * 2 + (order[1] > order[2]))];
  }
  for (const int count : seen) EXPECT_GT(count, 60);  // 100 expected, sigma 9
}

TEST(SampleOrder, IsMixed) {
  const SampleOrder order(10007, 3);
  double displacement = 0;
  std::int64_t neighbours = 0;
  for (std::int64_t i = 0; i < order.samples(); ++i) {
    displacement += std::abs(static_cast<double>(order.at(0, i) - i));
    neighbours += i > 0 && std::abs(order.at(0, i) - order.at(0, i - 1)) == 1;
  }
  EXPECT_NEAR(displacement / 10007 / 10007, 1.0 / 3, 0.01);  // of a random permutation
  EXPECT_LT(neighbours, 12);                                 // 2 expected
}

TEST(SampleOrder, DrawsGoThroughTheEpochs) {
  const SampleOrder order(7, 5);
  for (std::int64_t i = 0; i < 30; ++i) EXPECT_EQ(order.draw(i), order.at(i / 7, i % 7));
  EXPECT_THROW((void)SampleOrder(0, 1).draw(0), Error);
}

// A run resumed by a later version must see the same data.
TEST(SampleOrder, GoldenValues) {
  EXPECT_THAT(epoch_of(SampleOrder(10, 1234), 0), ElementsAre(1, 7, 0, 5, 2, 8, 4, 6, 3, 9));
  EXPECT_THAT(epoch_of(SampleOrder(10, 1234), 1), ElementsAre(0, 7, 4, 3, 5, 1, 2, 8, 9, 6));
  const SampleOrder large(std::int64_t{1} << 40, 42);
  EXPECT_EQ(large.at(0, 0), 942690915255);
  EXPECT_EQ(large.at(3, 1000000000000), 450001982981);
}

std::int64_t tokens_of(const std::vector<TokenRange>& ranges) {
  std::int64_t sum = 0;
  for (const TokenRange& range : ranges) sum += range.end - range.begin;
  return sum;
}

TEST(SplitPlan, ManyDocumentsAreDrawnWhole) {
  std::vector<std::int64_t> starts{0};
  std::mt19937 random(1);
  for (int d = 0; d < 1001; ++d)
    starts.push_back(starts.back() + 1 + static_cast<std::int64_t>(random() % 200));
  const SplitPlan plan = plan_split(starts, {95, 5});
  const double share =
      static_cast<double>(tokens_of(plan.valid)) / static_cast<double>(starts.back());
  EXPECT_NEAR(share, 0.05, 0.002);
  EXPECT_LE(share, 0.05);
  EXPECT_GT(plan.valid.size(), 30U);  // from all over
  std::vector<TokenRange> all = plan.train;
  all.insert(all.end(), plan.valid.begin(), plan.valid.end());
  std::sort(all.begin(), all.end(), [](auto a, auto b) { return a.begin < b.begin; });
  std::int64_t end = 0;
  for (const TokenRange& range : all) {
    EXPECT_EQ(range.begin, end);  // neither gap nor overlap
    end = range.end;
    EXPECT_TRUE(std::binary_search(starts.begin(), starts.end(), end));
  }
  EXPECT_EQ(end, starts.back());
  EXPECT_EQ(plan_split(starts, {0.95, 0.05}).valid, plan.valid);  // shares of any sum
}

TEST(SplitPlan, OneDocumentLosesItsEnd) {
  const std::vector<std::int64_t> starts{0, 1000};
  const SplitPlan plan = plan_split(starts, {9, 1});
  EXPECT_THAT(plan.train, ElementsAre(TokenRange{0, 900}));
  EXPECT_THAT(plan.valid, ElementsAre(TokenRange{900, 1000}));
}

TEST(SplitPlan, ThreeSharesAreDisjointAndWhole) {
  std::vector<std::int64_t> starts{0};
  std::mt19937 random(2);
  for (int d = 0; d < 1000; ++d)
    starts.push_back(starts.back() + 1 + static_cast<std::int64_t>(random() % 200));
  const SplitPlan plan = plan_split(starts, {400, 300, 300});
  const auto total = static_cast<double>(starts.back());
  EXPECT_NEAR(static_cast<double>(tokens_of(plan.valid)) / total, 0.3, 0.002);
  EXPECT_NEAR(static_cast<double>(tokens_of(plan.test)) / total, 0.3, 0.002);
  std::vector<TokenRange> all = plan.train;
  all.insert(all.end(), plan.valid.begin(), plan.valid.end());
  all.insert(all.end(), plan.test.begin(), plan.test.end());
  std::sort(all.begin(), all.end(), [](auto a, auto b) { return a.begin < b.begin; });
  std::int64_t end = 0;
  for (const TokenRange& range : all) {
    EXPECT_EQ(range.begin, end);
    end = range.end;
  }
  EXPECT_EQ(end, starts.back());
  // The test set takes nothing away from validation.
  EXPECT_EQ(plan_split(starts, {700, 300, 0}).valid, plan.valid);
}

TEST(SplitPlan, AFewDocumentsLoseTheirEnds) {
  const std::vector<std::int64_t> starts{0, 400, 1000};
  const SplitPlan plan = plan_split(starts, {8, 1, 1});
  EXPECT_THAT(plan.train, ElementsAre(TokenRange{0, 800}));
  EXPECT_THAT(plan.valid, ElementsAre(TokenRange{800, 900}));
  EXPECT_THAT(plan.test, ElementsAre(TokenRange{900, 1000}));
}

TEST(SplitPlan, SharesOfNothing) {
  const std::vector<std::int64_t> starts{0, 10, 20, 20, 30};
  EXPECT_THAT(plan_split(starts, {1, 0}).train, ElementsAre(TokenRange{0, 30}));
  EXPECT_TRUE(plan_split(starts, {1, 0}).valid.empty());
  EXPECT_TRUE(plan_split(starts, {0, 1}).train.empty());
  EXPECT_THAT(plan_split(starts, {0, 1}).valid, ElementsAre(TokenRange{0, 30}));
}

}  // namespace
}  // namespace sluice::testing
