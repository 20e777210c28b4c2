#include "runtime/data/packing_plan.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <random>

#include "tests/runtime/data/data_testing.hpp"

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;

// Best fit decreasing by search of all rows.
std::vector<PackedRow> searched_rows(const std::vector<std::int64_t>& lengths, std::int64_t seq) {
  std::vector<PackedPart> parts;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] > 0) parts.push_back({static_cast<std::int64_t>(i), lengths[i]});
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.length > b.length; });
  std::vector<PackedRow> rows;
  for (const PackedPart& part : parts) {
    PackedRow* best = nullptr;
    for (PackedRow& row : rows) {
      if (row.used + part.length > seq) continue;
      if (best == nullptr || row.used > best->used) best = &row;
    }
    if (best == nullptr) best = &rows.emplace_back();
    best->parts.push_back(part);
    best->used += part.length;
  }
  for (PackedRow& row : rows) {
    std::sort(row.parts.begin(), row.parts.end(),
              [](const auto& a, const auto& b) { return a.document < b.document; });
  }
  return rows;
}

std::vector<std::int64_t> random_lengths(std::size_t count, std::int64_t longest, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int64_t> lengths(count);
  for (std::int64_t& length : lengths) {
    length = static_cast<std::int64_t>(random() % static_cast<unsigned>(longest + 1));
  }
  return lengths;
}

// Lengths as of conversations: a logarithmic normal distribution about 300, the longest a row.
std::vector<std::int64_t> conversation_lengths(std::size_t count, std::int64_t seq) {
  std::mt19937 random(7);
  std::vector<std::int64_t> lengths(count);
  const auto uniform = [&] { return (static_cast<double>(random()) + 0.5) / 4294967296.0; };
  for (std::int64_t& length : lengths) {
    const double normal =
        std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform());
    length = std::clamp<std::int64_t>(std::llround(300 * std::exp(normal)), 8, seq);
  }
  return lengths;
}

TEST(PackingPlan, IsBestFitDecreasing) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const auto lengths = random_lengths(60, 40, seed);
    EXPECT_EQ(plan_packing(lengths, {.seq = 40, .window = 60}).rows, searched_rows(lengths, 40));
  }
}

TEST(PackingPlan, HoldsEachDocumentOnceWithinEveryRow) {
  for (const std::int64_t window : {1, 3, 16, 1000}) {
    const auto lengths = random_lengths(500, 64, static_cast<unsigned>(window));
    const PackingPlan plan = plan_packing(lengths, {.seq = 64, .window = window});
    std::map<std::int64_t, std::int64_t> found;
    for (const PackedRow& row : plan.rows) {
      std::int64_t used = 0;
      for (const PackedPart& part : row.parts) {
        EXPECT_TRUE(found.emplace(part.document, part.length).second);
        used += part.length;
      }
      EXPECT_EQ(used, row.used);
      EXPECT_LE(used, 64);
    }
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      EXPECT_EQ(found.count(static_cast<std::int64_t>(i)), lengths[i] > 0 ? 1U : 0U);
      if (lengths[i] > 0) {
        EXPECT_EQ(found[static_cast<std::int64_t>(i)], lengths[i]);
      }
    }
  }
}

TEST(PackingPlan, UsesNearlyAllPlacesOfConversations) {
  const auto lengths = conversation_lengths(20'000, 2048);
  const PackingPlan plan = plan_packing(lengths, {.seq = 2048});
  EXPECT_EQ(plan.counts.documents, 20'000);
  EXPECT_GE(plan.counts.used_share(2048), 0.98);
}

TEST(PackingPlan, OpenRowsAreFilledByLaterWindows) {
  const std::vector<std::int64_t> lengths{6, 4, 5, 5};
  const PackingPlan plan = plan_packing(lengths, {.seq = 10, .window = 1});
  ASSERT_EQ(plan.rows.size(), 2U);
  EXPECT_THAT(plan.rows[0].parts, ElementsAre(PackedPart{0, 6}, PackedPart{1, 4}));
  EXPECT_THAT(plan.rows[1].parts, ElementsAre(PackedPart{2, 5}, PackedPart{3, 5}));
}

TEST(PackingPlan, CountsWhatIsTooLong) {
  const std::vector<std::int64_t> lengths{3, 12, 7};
  const PackingPlan dropped = plan_packing(lengths, {.seq = 10, .truncation = Truncation::kDrop});
  EXPECT_THAT(dropped.dropped, ElementsAre(1));
  EXPECT_EQ(dropped.counts.dropped, 1);
  EXPECT_EQ(dropped.counts.lost_tokens, 12);
  EXPECT_EQ(dropped.counts.tokens, 10);
  const PackingPlan cut = plan_packing(lengths, {.seq = 10, .truncation = Truncation::kCut});
  EXPECT_THAT(cut.cut, ElementsAre(1));
  EXPECT_EQ(cut.counts.cut, 1);
  EXPECT_EQ(cut.counts.lost_tokens, 2);
  EXPECT_EQ(cut.counts.tokens, 20);
  EXPECT_EQ(message_of<ConfigError>([&] { (void)plan_packing(lengths, {.seq = 10}); }),
            "document 1 has 12 tokens, more than model.seq (10); raise model.seq, or set truncate "
            "to drop or cut");
}

}  // namespace
}  // namespace sluice::testing
