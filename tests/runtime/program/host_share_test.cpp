// Optimizer states on NVMe of which a share is on the host (offload.host_fraction).
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runtime/program/check/program_check.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/shapes.hpp"

namespace sluice {
namespace {

// Groups of these sizes, of a rank alone with its optimizer on NVMe.
ShardShape shape_of(const std::vector<std::int64_t>& elems) {
  ShardShape shape;
  shape.stage = 1;
  shape.placement.optimizer = Tier::kNvme;
  for (const std::int64_t each : elems) shape.groups.push_back({each, each});
  return shape;
}

std::int64_t elems_on_host(const ShardShape& shape, int begin, int end) {
  std::int64_t elems = 0;
  for (int g = begin; g < end; ++g) {
    if (optimizer_tier(shape, g) == Tier::kHost) elems += off_device_elems(shape, g);
  }
  return elems;
}

TEST(HostShare, IsAtMostTheShareAndSpreadOverTheStep) {
  std::vector<std::int64_t> sizes{6500, 400};
  sizes.insert(sizes.end(), 40, 2000);
  sizes.push_back(6600);
  ShardShape shape = shape_of(sizes);
  const int count = static_cast<int>(sizes.size());
  const std::int64_t all = 6500 + 400 + 40 * 2000 + 6600;
  for (const double share : {0.0, 0.02, 0.25, 0.5, 0.75, 0.99}) {
    share_states(shape, share);
    const auto wanted = static_cast<std::int64_t>(share * static_cast<double>(all));
    const std::int64_t there = elems_on_host(shape, 0, count);
    EXPECT_LE(there, wanted) << share;
    for (int g = 0; g < count; ++g) {
      if (optimizer_tier(shape, g) == Tier::kHost) continue;
      EXPECT_GT(there + off_device_elems(shape, g), wanted) << share << ", group " << g;
    }
    // Of any quarter of the blocks, what all blocks have, by less than two blocks.
    const double of_blocks = static_cast<double>(elems_on_host(shape, 2, 42)) / 80000;
    for (int begin = 2; begin + 10 <= 42; begin += 10) {
      const auto of_run = static_cast<double>(elems_on_host(shape, begin, begin + 10));
      EXPECT_NEAR(of_run / 20000, of_blocks, 0.19) << share << ", group " << begin;
    }
  }
}

// The first quarter has no early updates. It gets at most half of the share.
TEST(HostShare, BeginsWithTheFirstGroupsBesideEarlyUpdates) {
  ShardShape shape = shape_of(std::vector<std::int64_t>(40, 1000));
  shape.placement.speculate = true;
  share_states(shape, 0.6);
  EXPECT_EQ(elems_on_host(shape, 0, 10), 10000);
  EXPECT_EQ(elems_on_host(shape, 0, 40), 24000);
  EXPECT_NEAR(static_cast<double>(elems_on_host(shape, 10, 25)), 7000, 1000);
  share_states(shape, 0.2);
  EXPECT_EQ(elems_on_host(shape, 0, 4), 4000);
  EXPECT_EQ(elems_on_host(shape, 0, 40), 8000);
}

TEST(HostShare, NoneOfWhatIsElsewhereOrFrozen) {
  ShardShape shape = shape_of({1000, 1000, 1000, 1000});
  shape.groups[1].frozen = true;
  share_states(shape, 0.9);
  EXPECT_FALSE(shape.groups[1].states_on_host);
  EXPECT_EQ(elems_on_host(shape, 0, 4), 2000);
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    shape.placement.optimizer = tier;
    share_states(shape, 0.9);
    for (const GroupShape& group : shape.groups) EXPECT_FALSE(group.states_on_host);
  }
}

TEST(HostShare, StatesOnTheHostAreNotMovedAndTheOthersAreReadAhead) {
  ShapeChoice choice{.stage = 3, .micro_batches = 3, .tied = true, .blocks = 4};
  choice.placement = {.optimizer = Tier::kNvme, .chunk_elems = 512, .chunk_slots = 4};
  choice.host_fraction = 0.5;
  const StepShape shape = make_shape(choice);
  const Program program = write_train_step(shape);
  std::int64_t host = 0, all = 0;
  int on_disk = 0, ahead = 0;
  for (std::size_t c = 0; c < program.chunks.size(); ++c) {
    const Chunk& chunk = program.chunks[c];
    EXPECT_EQ(chunk.on_disk, optimizer_tier(shape, chunk.group) == Tier::kNvme);
    all += chunk.elems;
    if (!chunk.on_disk) host += chunk.elems;
    on_disk += chunk.on_disk ? 1 : 0;
    ahead += chunk.on_disk && static_cast<int>(c) < program.chunks_ahead ? 1 : 0;
  }
  EXPECT_LE(2 * host, all);
  EXPECT_GT(4 * host, all);
  int read = 0, read_ahead = 0, written = 0, updated = 0;
  for (const Op& op : program.ops) {
    read += op.kind == OpKind::kReadStates ? 1 : 0;
    read_ahead += op.kind == OpKind::kReadStates && op.ahead ? 1 : 0;
    written += op.kind == OpKind::kWriteStates ? 1 : 0;
    updated += op.kind == OpKind::kUpdate ? 1 : 0;
  }
  EXPECT_EQ(read, on_disk);
  EXPECT_EQ(written, on_disk);
  EXPECT_EQ(read_ahead, ahead);
  EXPECT_EQ(updated, std::ssize(program.chunks));
}

// What the checker says of a program whose operation is left out.
TEST(HostShare, MovesOfTheOtherStatesAreChecked) {
  ShapeChoice choice{.stage = 3, .blocks = 4};
  choice.placement = {.optimizer = Tier::kNvme, .chunk_elems = 512, .chunk_slots = 2};
  choice.host_fraction = 0.5;
  const Program program = write_train_step(make_shape(choice));
  ASSERT_EQ(find_fault(program), "");
  Program swapped = program;
  for (Chunk& chunk : swapped.chunks) chunk.on_disk = !chunk.on_disk;
  EXPECT_NE(find_fault(swapped), "");
  for (const bool on_disk : {false, true}) {
    Program other = program;
    for (Chunk& chunk : other.chunks) chunk.on_disk = on_disk;
    EXPECT_NE(find_fault(other), "") << on_disk;
  }
}

}  // namespace
}  // namespace sluice
