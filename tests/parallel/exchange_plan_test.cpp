#include "parallel/comm/exchange_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace sluice {
namespace {

TEST(ExchangePlan, CoversEveryElementOnceInOrderAndFillsTheBatches) {
  const std::vector<std::vector<std::int64_t>> cases{
      {}, {0}, {1}, {7}, {8}, {9}, {0, 3, 0, 5, 1}, {31, 2, 17}, {8, 8, 8}, {1, 1, 1, 1, 1}};
  for (const auto& pieces : cases) {
    for (const std::int64_t batch : {1, 3, 4, 8, 100}) {
      const ExchangePlan plan = plan_exchange(pieces, batch);
      const std::int64_t total = std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0});
      EXPECT_EQ(plan.ring_elems, std::min(total, 2 * batch));
      std::vector<std::int64_t> reached(pieces.size(), 0);
      std::int64_t run = 0;
      for (std::size_t b = 0; b < plan.batches.size(); ++b) {
        std::int64_t in_batch = 0;
        for (const ExchangeSegment& segment : plan.batches[b]) {
          EXPECT_GT(segment.elems, 0);
          EXPECT_EQ(segment.offset, reached[segment.piece]);
          EXPECT_EQ(segment.ring, run % (2 * batch));
          EXPECT_LE(segment.ring + segment.elems, plan.ring_elems);
          reached[segment.piece] += segment.elems;
          run += segment.elems;
          in_batch += segment.elems;
        }
        EXPECT_EQ(in_batch, b + 1 < plan.batches.size() ? batch : total - run + in_batch);
        EXPECT_LE(in_batch, batch);
      }
      EXPECT_EQ(reached, pieces);
    }
  }
}

TEST(ExchangePlan, StagingIsBoundedWhateverTheSize) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    EXPECT_EQ(exchange_staging_bytes(1, 1 << 30, dtype), 0);
    EXPECT_EQ(exchange_staging_bytes(2, 5, dtype), 5 * size_of(dtype));
    EXPECT_EQ(exchange_staging_bytes(4, 5, dtype), 15 * size_of(dtype));
    for (const int size : {2, 3, 8, 16, 64}) {
      EXPECT_LE(exchange_staging_bytes(size, std::int64_t{1} << 40, dtype), 64 << 20);
    }
  }
  // Rounded: the shares of the peers, and those of all ranks before they are sent.
  constexpr ReduceDtype kRounded{DType::kFloat32, DType::kBFloat16};
  EXPECT_EQ(exchange_staging_bytes(1, 1 << 30, kRounded), 0);
  EXPECT_EQ(exchange_staging_bytes(4, 5, kRounded), (3 + 4) * 5 * 2);
  for (const int size : {2, 3, 8, 16, 64}) {
    EXPECT_LE(exchange_staging_bytes(size, std::int64_t{1} << 40, kRounded), 132 << 20);
  }
}

}  // namespace
}  // namespace sluice
