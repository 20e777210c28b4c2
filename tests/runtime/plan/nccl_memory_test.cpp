#include "runtime/plan/nccl_memory.hpp"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

StepShape mesh(int tensor, int dp, int stages = 1, int stage = 0) {
  StepShape shape;
  shape.tensor = tensor;
  shape.dp = dp;
  shape.pipeline.stages = stages;
  shape.pipeline.stage = stage;
  return shape;
}

TEST(NcclMemory, ARankAloneHasNone) { EXPECT_EQ(nccl_buffer_bytes(mesh(1, 1), 1), 0); }

TEST(NcclMemory, EachPeerOfAHostHasSixteenChannels) {
  EXPECT_EQ(nccl_buffer_bytes(mesh(1, 2), 2), 16 * 12 * kMiB);
  EXPECT_EQ(nccl_buffer_bytes(mesh(1, 8), 8), 7 * 16 * 12 * kMiB);
  EXPECT_EQ(nccl_buffer_bytes(mesh(4, 2), 8), (3 + 1) * 16 * 12 * kMiB);
}

TEST(NcclMemory, PeersOfOtherHostsShareChunks) {
  EXPECT_EQ(nccl_buffer_bytes(mesh(1, 3), 1), 16 * 4 * kMiB);
  EXPECT_EQ(nccl_buffer_bytes(mesh(8, 8), 8), 7 * 16 * 12 * kMiB + 16 * 4 * kMiB);
  // Two of the four data-parallel ranks are on this host.
  EXPECT_EQ(nccl_buffer_bytes(mesh(4, 4), 8), (3 + 1) * 16 * 12 * kMiB + 16 * 4 * kMiB);
}

TEST(NcclMemory, LinksHaveFourChannelsAndOneDirection) {
  constexpr std::int64_t kNeighbour = 4 * (6 + 10) * kMiB;
  EXPECT_EQ(nccl_buffer_bytes(mesh(1, 1, 4, 0), 4), kNeighbour);
  EXPECT_EQ(nccl_buffer_bytes(mesh(1, 1, 4, 1), 4), 2 * kNeighbour);
  EXPECT_EQ(nccl_buffer_bytes(mesh(1, 1, 4, 3), 1), 4 * 4 * kMiB);
  StepShape wraps = mesh(1, 1, 4, 0);
  wraps.pipeline.chunk_ends = {2, 4};
  EXPECT_EQ(nccl_buffer_bytes(wraps, 4), 2 * kNeighbour);
}

TEST(NcclMemory, TiedEmbeddingsHaveAGroup) {
  StepShape first = mesh(1, 1, 2, 0);
  const std::int64_t untied = nccl_buffer_bytes(first, 2);
  first.groups.resize(1);
  first.groups[0].at_ends = true;
  EXPECT_EQ(nccl_buffer_bytes(first, 2) - untied, 16 * 12 * kMiB);
}

}  // namespace
}  // namespace sluice
