#include "zero/partition_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace sluice {
namespace {

using Tensors = std::vector<TensorSpec>;

std::vector<Tensors> tensor_sets() {
  return {
      {{"one", {1}, false}},
      {{"table", {50257, 48}, true}},
      {{"w", {33, 7}, true}, {"b", {7}, false}, {"g", {31}, false}, {"v", {32}, true}},
      {{"scalar", {}, true}, {"w", {64, 64}, true}, {"b", {64}, false}},
      {{"a", {97}, false}, {"b", {97}, false}, {"c", {97, 3, 5}, true}, {"d", {2}, true}},
  };
}

// The decay setting of each element of the group as the tensors say it; -1 in padding.
std::vector<int> decay_by_element(const GroupPlan& group) {
  std::vector<int> decay(static_cast<std::size_t>(group.elems), -1);
  for (const TensorPlacement& tensor : group.tensors) {
    std::fill_n(decay.begin() + tensor.offset_elems, tensor.elems, tensor.spec.decay ? 1 : 0);
  }
  return decay;
}

TEST(PlanGroup, CoversEachElementOnceAndNamesThePadding) {
  for (const Tensors& tensors : tensor_sets()) {
    for (const int dp : {1, 2, 3, 4, 7, 64}) {
      const GroupPlan group = plan_group("g", tensors, dp);
      std::vector<int> covered(static_cast<std::size_t>(group.elems), 0);
      const auto cover = [&](std::int64_t begin, std::int64_t end) {
        ASSERT_LE(0, begin);
        ASSERT_LT(begin, end);
        ASSERT_LE(end, group.elems);
        for (std::int64_t e = begin; e < end; ++e) ++covered[static_cast<std::size_t>(e)];
      };
      std::int64_t params = 0;
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        const TensorPlacement& tensor = group.tensors[t];
        EXPECT_EQ(tensor.spec.name, tensors[t].name);
        EXPECT_EQ(tensor.offset_elems % kAlignElems, 0);
        EXPECT_EQ(tensor.elems, std::accumulate(tensors[t].shape.begin(), tensors[t].shape.end(),
                                                std::int64_t{1}, std::multiplies<>()));
        cover(tensor.offset_elems, tensor.offset_elems + tensor.elems);
        params += tensor.elems;
      }
      for (const ElemRange& gap : group.padding) cover(gap.begin, gap.end);
      EXPECT_TRUE(std::all_of(covered.begin(), covered.end(), [](int n) { return n == 1; }));
      EXPECT_EQ(group.param_elems, params);
    }
  }
}

TEST(PlanGroup, ShardsAreEqualAlignedAndWasteLessThanABorderEach) {
  for (const Tensors& tensors : tensor_sets()) {
    for (const int dp : {1, 2, 3, 4, 7, 64}) {
      const GroupPlan group = plan_group("g", tensors, dp);
      EXPECT_EQ(group.elems, group.shard_elems * dp);
      EXPECT_EQ(group.shard_elems % kAlignElems, 0);
      const std::int64_t end = group.tensors.back().offset_elems + group.tensors.back().elems;
      EXPECT_GE(group.elems, end);
      EXPECT_LT(group.elems, end + dp * kAlignElems);
    }
  }
}

TEST(PlanGroup, TensorOffsetsDoNotDependOnTheNumberOfRanks) {
  for (const Tensors& tensors : tensor_sets()) {
    const GroupPlan alone = plan_group("g", tensors, 1);
    for (const int dp : {2, 3, 64}) {
      const GroupPlan group = plan_group("g", tensors, dp);
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        EXPECT_EQ(group.tensors[t].offset_elems, alone.tensors[t].offset_elems);
      }
    }
  }
}

TEST(PlanGroup, OddVocabularyOnThreeRanks) {
  const GroupPlan group = plan_group("wte", Tensors{{"wte", {50257, 48}, true}}, 3);
  EXPECT_EQ(group.param_elems, 2412336);
  EXPECT_EQ(group.shard_elems, 804128);  // 804112 is not a multiple of 32
  EXPECT_EQ(group.elems, 2412384);
  ASSERT_EQ(group.padding.size(), 1U);
  EXPECT_EQ(group.padding[0].begin, 2412336);
  EXPECT_EQ(group.padding[0].end, 2412384);
}

TEST(PlanGroup, RefusesNoRanks) { EXPECT_THROW((void)plan_group("g", tensor_sets()[0], 0), Error); }

TEST(ShardSegments, CoverEachShardInOrderWithTheTensorsDecay) {
  for (const Tensors& tensors : tensor_sets()) {
    for (const int dp : {1, 2, 3, 4, 7}) {
      const GroupPlan group = plan_group("g", tensors, dp);
      const std::vector<int> decay = decay_by_element(group);
      for (int rank = -1; rank < dp; ++rank) {
        const std::int64_t begin = rank < 0 ? 0 : rank * group.shard_elems;
        const std::int64_t elems = rank < 0 ? group.elems : group.shard_elems;
        std::int64_t at = 0;
        bool last = false;
        for (const ShardSegment& segment : shard_segments(group, rank)) {
          EXPECT_EQ(segment.range.begin, at);
          EXPECT_LT(segment.range.begin, segment.range.end);
          if (at > 0) {
            EXPECT_NE(segment.decay, last) << "neighbours alike are one segment";
          }
          last = segment.decay;
          for (; at < segment.range.end; ++at) {
            const int expected = decay[static_cast<std::size_t>(begin + at)];
            if (expected >= 0) {
              ASSERT_EQ(segment.decay, expected == 1) << "element " << at;
            }
          }
        }
        EXPECT_EQ(at, elems);
      }
    }
  }
}

struct Cut {
  std::int64_t bucket_bytes;
  int dp;
  std::vector<std::int64_t> shards;
};

std::vector<std::vector<BucketPiece>> cut_all(const Cut& cut) {
  BucketCutter cutter(cut.bucket_bytes, cut.dp);
  std::vector<std::vector<BucketPiece>> buckets;
  for (std::size_t g = 0; g < cut.shards.size(); ++g) {
    for (auto& bucket : cutter.add(static_cast<int>(g), cut.shards[g])) buckets.push_back(bucket);
  }
  if (auto rest = cutter.flush(); !rest.empty()) buckets.push_back(rest);
  EXPECT_TRUE(cutter.flush().empty());
  return buckets;
}

TEST(BucketCutter, CutsEveryShardOnceInOrderWithinTheSize) {
  const std::vector<std::vector<std::int64_t>> shapes = {
      {32}, {32, 64, 32}, {1024, 32, 4096}, {804128, 64, 96, 2048}};
  for (const auto& shards : shapes) {
    for (const int dp : {1, 2, 3, 8}) {
      for (const std::int64_t bytes : {1L, 500L, 4096L, 10'000L, 1L << 20, 1L << 40}) {
        const auto buckets = cut_all({bytes, dp, shards});
        std::size_t group = 0;
        std::int64_t at = 0;
        for (const auto& bucket : buckets) {
          std::int64_t bucket_elems = 0;
          for (const BucketPiece& piece : bucket) {
            if (at == shards[group]) {
              ++group;
              at = 0;
            }
            ASSERT_EQ(static_cast<std::size_t>(piece.group), group);
            ASSERT_EQ(piece.begin, at);
            ASSERT_GT(piece.elems, 0);
            ASSERT_EQ(piece.elems % kAlignElems, 0);
            at += piece.elems;
            bucket_elems += piece.elems;
          }
          const std::int64_t smallest = kAlignElems * dp * 4;
          ASSERT_LE(bucket_elems * dp * 4, std::max(bytes, smallest));
          if (&bucket != &buckets.back() && bytes >= smallest) {
            ASSERT_GT(bucket_elems * dp * 4 + smallest, bytes) << "a bucket left half empty";
          }
        }
        EXPECT_EQ(group + 1, shards.size());
        EXPECT_EQ(at, shards.back());
      }
    }
  }
}

}  // namespace
}  // namespace sluice
