// Which gradients of a GPU take the place of activations (pass_gradients()).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "base/failpoint.hpp"
#include "base/index.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/plan/passing_gradients.hpp"

namespace sluice {
namespace {

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
constexpr int kGpuBlocks = 7;

// Units of an embedding, blocks and a head with a group each. A block has 3 MiB of gradients on a
// rank alone and keeps `kept` bytes; a table has 40 MiB.
StepShape gpu_shape(int stage, int dp, std::int64_t kept) {
  StepShape shape;
  shape.on_gpu = true;
  shape.stage = stage;
  shape.dp = dp;
  for (int u = 0; u < kGpuBlocks + 2; ++u) {
    const bool block = u > 0 && u <= kGpuBlocks;
    const std::int64_t elems = (block ? 3 : 40) * kMebibyte / 4;
    shape.groups.push_back({.elems = elems, .shard_elems = elems / dp, .resident = stage < 3});
    UnitMemory memory;
    memory.output = memory.input_gradient = kMebibyte;
    memory.kept = block ? kept : 0;
    memory.backward_peak = memory.recompute_peak = 2 * kMebibyte;
    shape.units.push_back({.groups = {u}, .memory = memory});
  }
  return shape;
}

// Of blocks; tables pass where groups are updated in the backward.
std::int64_t passing_bytes(StepShape shape) {
  pass_gradients(shape);
  std::int64_t bytes = 0, largest = 0;
  for (int g = 1; g <= kGpuBlocks; ++g) {
    const GroupShape& group = nth(shape.groups, g);
    bytes += group.passing_gradient_bytes;
    largest = std::max(largest, group.passing_gradient_bytes);
  }
  const std::int64_t table = shape.updates_in_backward ? 40 * kMebibyte : 0;
  EXPECT_EQ(shape.groups.front().passing_gradient_bytes, table);
  EXPECT_EQ(shape.groups.back().passing_gradient_bytes, table);
  EXPECT_EQ(shape.passing_gap_bytes, bytes > 0 ? cuda_gap_bytes(largest) : 0);
  return bytes;
}

constexpr std::int64_t kMuch = 16 * kMebibyte;

TEST(PassGradients, BlocksPassWhereTheyFindRoom) {
  for (const int stage : {0, 1, 2, 3}) {
    EXPECT_EQ(passing_bytes(gpu_shape(stage, 1, kMuch)), kGpuBlocks * 3 * kMebibyte) << stage;
  }
}

TEST(PassGradients, RanksOfStages2And3PassTheirShards) {
  for (const int stage : {0, 1, 2, 3}) {
    const std::int64_t block = stage < 2 ? 3 * kMebibyte : 3 * kMebibyte / 2;
    EXPECT_EQ(passing_bytes(gpu_shape(stage, 2, kMuch)), kGpuBlocks * block) << stage;
  }
}

// A shard below 1 MiB would take a segment of libtorch's allocator for itself.
TEST(PassGradients, SmallShardsKeepTheirRows) {
  EXPECT_EQ(passing_bytes(gpu_shape(2, 4, kMuch)), 0);
  EXPECT_GT(passing_bytes(gpu_shape(1, 4, kMuch)), 0);
}

// The gradients of all blocks lie beside the last of few activations, so nothing is saved.
TEST(PassGradients, NoneWhereActivationsGiveNoRoom) {
  EXPECT_EQ(passing_bytes(gpu_shape(0, 1, 0)), 0);
  StepShape recomputed = gpu_shape(0, 1, kMuch);
  recomputed.recompute = true;
  EXPECT_EQ(passing_bytes(recomputed), 0);
  arm_failpoints("plan.passing_gradients:nan");
  EXPECT_EQ(passing_bytes(recomputed), kGpuBlocks * 3 * kMebibyte);
  arm_failpoints("");
}

// Gradients that an update in the backward frees find room beside few activations.
TEST(PassGradients, UpdatesInTheBackwardMakeRoom) {
  for (const int dp : {1, 2}) {
    SCOPED_TRACE(dp);
    StepShape recomputed = gpu_shape(1, dp, kMuch);
    recomputed.recompute = true;
    EXPECT_EQ(passing_bytes(recomputed), 0);
    recomputed.updates_in_backward = true;
    EXPECT_EQ(passing_bytes(recomputed), kGpuBlocks * 3 * kMebibyte);
    pass_gradients(recomputed);
    EXPECT_TRUE(recomputed.updates_in_backward);
    for (GroupShape& group : recomputed.groups) group.add_replicas = true;  // wait for the norm
    EXPECT_EQ(passing_bytes(recomputed), 0);
    pass_gradients(recomputed);
    EXPECT_FALSE(recomputed.updates_in_backward);
  }
}

// Gradients of a table that the first and the last unit read exist in the whole backward. Those of
// replicas, such as a tied table of a pipeline, wait for the norm.
TEST(PassGradients, TiedTablesAndThoseOfReplicasKeepTheirRows) {
  for (const bool tied : {true, false}) {
    SCOPED_TRACE(tied);
    StepShape shape = gpu_shape(1, 1, kMuch);
    shape.recompute = shape.updates_in_backward = true;
    GroupShape& keeps = tied ? shape.groups.front() : shape.groups.back();
    GroupShape& passes = tied ? shape.groups.back() : shape.groups.front();
    if (tied) shape.units.back().groups.push_back(0);
    keeps.add_replicas = !tied;
    pass_gradients(shape);
    EXPECT_TRUE(shape.updates_in_backward);
    EXPECT_EQ(keeps.passing_gradient_bytes, 0);
    EXPECT_GT(passes.passing_gradient_bytes, 0);
  }
}

TEST(PassGradients, MicroBatchesPassInLayerOrderAlone) {
  StepShape shape = gpu_shape(0, 1, kMuch);
  shape.micro_batches = 4;
  shape.reduce_every = ReduceEvery::kStep;
  EXPECT_EQ(passing_bytes(shape), 0);
  shape.layer_major = true;
  EXPECT_EQ(passing_bytes(shape), kGpuBlocks * 3 * kMebibyte);
  shape.reduce_every = ReduceEvery::kMicroBatch;  // full gradients and a shard for their sum
  EXPECT_EQ(passing_bytes(shape), 0);
}

TEST(PassGradients, NoneOfTheHostOrFrozenOrUpdatedElsewhere) {
  StepShape host = gpu_shape(0, 1, kMuch);
  host.on_gpu = false;
  EXPECT_EQ(passing_bytes(host), 0);
  StepShape away = gpu_shape(0, 1, kMuch);
  away.placement.optimizer = Tier::kHost;
  EXPECT_EQ(passing_bytes(away), 0);
  StepShape frozen = gpu_shape(0, 1, kMuch);
  nth(frozen.groups, 1).frozen = true;
  EXPECT_EQ(passing_bytes(frozen), (kGpuBlocks - 1) * 3 * kMebibyte);
}

}  // namespace
}  // namespace sluice
