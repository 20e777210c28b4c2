// Work off the device before the norm is known: updates and sums of squares, of which chunks, when,
// and what they move.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "runtime/program/check/program_check.hpp"
#include "runtime/program/model/memory_model.hpp"
#include "runtime/program/model/time_model.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "runtime/program/write/update_flow.hpp"
#include "tests/runtime/program/shapes.hpp"
#include "tests/runtime/program/tier_simulation.hpp"

namespace sluice {
namespace {

std::int64_t speculated_elems(const Program& program) {
  std::int64_t elems = 0;
  for (const Chunk& chunk : program.chunks) elems += chunk.speculated ? chunk.elems : 0;
  return elems;
}

std::int64_t chunk_elems(const Program& program) {
  std::int64_t elems = 0;
  for (const Chunk& chunk : program.chunks) elems += chunk.elems;
  return elems;
}

constexpr Tier kOffDevice[] = {Tier::kHost, Tier::kNvme};

void expect_updates_once(Tier optimizer, std::map<OpKind, int> once,
                         DType dtype = DType::kFloat32) {
  once[OpKind::kUpdate] = 1;
  for (const bool layer_major : {false, true}) {
    ShapeChoice choice = early_gradients(true, optimizer);
    choice.dtype = dtype;
    choice.micro_batches = 3;
    choice.layer_major = layer_major;
    const Program program = write_train_step(make_shape(choice));
    std::map<int, std::map<OpKind, int>> seen;  // by chunk
    int heads = 0;
    for (const Op& op : program.ops) {
      heads += op.kind == OpKind::kLossHead ? 1 : 0;
      if (!op.speculative) continue;
      EXPECT_EQ(heads, 3);
      EXPECT_GE(op.chunk, program.chunks_ahead);
      ++seen[op.chunk][op.kind];
    }
    EXPECT_GT(seen.size(), 3U);
    for (const auto& [chunk, kinds] : seen) {
      EXPECT_TRUE(program.chunks[static_cast<std::size_t>(chunk)].speculated);
      EXPECT_EQ(kinds, once);
    }
    EXPECT_EQ(static_cast<std::size_t>(std::count_if(program.chunks.begin(), program.chunks.end(),
                                                     [](const Chunk& c) { return c.speculated; })),
              seen.size());
  }
}

TEST(Speculation, UpdatesChunksOnceUnderTheLastBackward) {
  expect_updates_once(
      Tier::kNvme, {{OpKind::kReadStates, 1}, {OpKind::kCopyGrads, 1}, {OpKind::kWriteStates, 1}});
  expect_updates_once(Tier::kHost, {{OpKind::kCopyGrads, 1}});
  expect_updates_once(Tier::kHost, {{OpKind::kCopyGrads, 1}, {OpKind::kCopyParams, 1}},
                      DType::kBFloat16);
}

// On the host each group gives a share whose gradients are complete before the last backward. In
// layer order that is the embedding's of the last micro-batch, so the first block is complete too.
TEST(Speculation, OnTheHostTakesOfAllThatIsComplete) {
  for (const bool layer_major : {false, true}) {
    ShapeChoice choice = early_gradients(true, Tier::kHost);
    choice.micro_batches = 2;
    choice.layer_major = layer_major;
    choice.placement.chunk_elems = 64;
    const int first_group = layer_major ? 2 : 3;
    std::map<int, bool> gives;
    for (const Chunk& chunk : write_train_step(make_shape(choice)).chunks) {
      gives[chunk.group] = gives[chunk.group] || chunk.speculated;
    }
    EXPECT_GT(gives.size(), 4U);
    for (const auto& [group, some] : gives) EXPECT_EQ(some, group >= first_group) << group;
  }
}

// Updates that are left to the next forward are spread over it.
TEST(Speculation, EachGroupGivesTheSameShareOfAShortRoom) {
  for (const Tier optimizer : kOffDevice) {
    ShapeChoice choice = early_gradients(true, optimizer);
    choice.layer_major = true;
    choice.placement.chunk_elems = 64;
    choice.placement.speculation_room_bytes = 12 * 64 * 90;
    std::map<int, std::pair<int, int>> early;  // by group: early chunks, chunks
    for (const Chunk& chunk : write_train_step(make_shape(choice)).chunks) {
      auto& [taken, all] = early[chunk.group];
      EXPECT_TRUE(!chunk.speculated || taken == all) << "early after deferred chunks";
      taken += chunk.speculated ? 1 : 0;
      ++all;
    }
    double least = 1;
    double most = 0;
    for (const int group : {4, 5, 6, 7}) {  // complete before the disk's last quarter, too
      const double share = static_cast<double>(early[group].first) / early[group].second;
      least = std::min(least, share);
      most = std::max(most, share);
    }
    EXPECT_GT(least, 0.2);
    EXPECT_LT(most - least, 0.06) << name_of(optimizer);
  }
}

// Two thirds of a step are backward; its share of the host's work is no more, and where groups are
// small beside it, no less.
TEST(Speculation, OnTheHostLeavesTheForwardItsShare) {
  for (const bool recompute : {false, true}) {
    ShapeChoice choice = early_gradients(true, Tier::kHost);
    choice.layer_major = true;
    choice.recompute = recompute;
    choice.placement.chunk_elems = 64;
    const Program program = write_train_step(make_shape(choice));
    const auto early = static_cast<double>(speculated_elems(program));
    const double left = static_cast<double>(chunk_elems(program)) - early;
    const double share = 1.25 * early / (left * (recompute ? 3 : 2));
    EXPECT_LE(share, 1);
    EXPECT_GT(share, 0.98);
  }
}

// The same of the disk.
TEST(Speculation, LeavesTheForwardItsShare) {
  for (const bool recompute : {false, true}) {
    for (const Tier params : {Tier::kDevice, Tier::kNvme}) {
      ShapeChoice choice = early_gradients();
      choice.recompute = recompute;
      choice.placement.parameters = params;
      const Program program = write_train_step(make_shape(choice));
      const double left = 1 - static_cast<double>(speculated_elems(program)) /
                                  static_cast<double>(chunk_elems(program));
      const double kept = params == Tier::kNvme ? 0 : 4;
      const double forward = 24 * left + kept * (1 - left);
      const double backward = 24 * (1 - left);
      EXPECT_LE(backward, forward * (recompute ? 3 : 2) * (1 + 1e-9));
    }
  }
}

TEST(Speculation, NeedsStatesOffTheDeviceAGradientThatIsThereAndARingThatIsNotWhole) {
  const auto none = [](const ShapeChoice& choice) {
    const Program program = write_train_step(make_shape(choice));
    return std::none_of(program.ops.begin(), program.ops.end(),
                        [](const Op& op) { return op.speculative; }) &&
           speculated_elems(program) == 0;
  };
  for (const Tier optimizer : kOffDevice) {
    ShapeChoice choice = early_gradients(true, optimizer);
    EXPECT_FALSE(none(choice));
    choice.placement.speculate = false;
    EXPECT_TRUE(none(choice));
    choice = early_gradients(true, optimizer);
    choice.placement.chunk_slots = 1000;  // all are in the ring when they are needed
    EXPECT_EQ(none(choice), optimizer == Tier::kNvme);
    choice = early_gradients(true, optimizer);
    choice.bucket_bytes = std::int64_t{1} << 40;  // one bucket, at the end of the step
    EXPECT_TRUE(none(choice));
  }
  EXPECT_TRUE(none(early_gradients(true, Tier::kDevice)));
  // fp32 parameters on the host are the master weights that the step reads.
  ShapeChoice choice = early_gradients(true, Tier::kHost);
  choice.placement.parameters = Tier::kHost;
  EXPECT_TRUE(none(choice));
  choice.dtype = DType::kBFloat16;
  EXPECT_FALSE(none(choice));
}

TEST(Speculation, OnTheHostTakesNoMoreRoomThanThereIs) {
  ShapeChoice choice = early_gradients(true, Tier::kHost);
  const Program whole = write_train_step(make_shape(choice));
  choice.placement.speculate = false;
  const std::int64_t plain = host_need(write_train_step(make_shape(choice)));
  choice.placement.speculate = true;
  std::int64_t before = -1;
  for (const std::int64_t chunks : {0, 1, 3, 1000}) {
    const std::int64_t room = chunks * 12 * choice.placement.chunk_elems;
    choice.placement.speculation_room_bytes = room;
    const Program program = write_train_step(make_shape(choice));
    const std::int64_t second = 12 * speculated_elems(program);
    EXPECT_LE(second, room);
    EXPECT_GT(second, before);
    before = second;
    // The operations of early updates are a part of the program, which is on the host too.
    const std::int64_t ops = host_bytes_of(program);
    EXPECT_LE(host_need(program), plain + second + ops + 4096);
  }
  EXPECT_EQ(before, 12 * speculated_elems(whole));
}

// The budget counts everything on the host, so what speculation may take is what is left of it.
TEST(Speculation, OnTheHostStaysWithinTheBudget) {
  ShapeChoice choice = early_gradients(true, Tier::kHost);
  StepShape shape = make_shape(choice);
  const Program whole = write_train_step(shape);
  const std::int64_t most = host_need(whole);
  shape.placement.speculate = false;
  const std::int64_t least = host_need(write_train_step(shape));
  shape.placement.speculate = true;
  std::int64_t before = -1;
  for (const std::int64_t budget :
       {least - 1, least, least + (most - least) / 3, most - 1, most, 2 * most}) {
    shape.host_budget_bytes = budget;
    const Program program = write_train_step(shape);
    EXPECT_LE(host_need(program), std::max(budget, least));
    EXPECT_GE(speculated_elems(program), before);
    before = speculated_elems(program);
    EXPECT_EQ(before > 0, budget > least);
    EXPECT_EQ(before == speculated_elems(whole), budget >= most);
  }
}

// An unclipped step's deferred updates of these chunks read master weights at most, and nothing
// where the new parameters are in their place.
TEST(Speculation, MovesTheStatesOnceAStep) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const Tier params : kAllTiers) {
      for (const Tier gradients : kAllTiers) {
        ShapeChoice choice = early_gradients();
        choice.dtype = dtype;
        choice.placement.parameters = params;
        choice.placement.gradients = gradients;
        const Traffic with = traffic_of(write_train_step(make_shape(choice)));
        const std::int64_t early = speculated_elems(write_train_step(make_shape(choice)));
        choice.placement.speculate = false;
        const Traffic without = traffic_of(write_train_step(make_shape(choice)));
        EXPECT_EQ(with.disk_written, without.disk_written);
        const bool replaced = params == Tier::kDevice && dtype == DType::kBFloat16;
        const bool kept = params == Tier::kHost && dtype == DType::kBFloat16;  // beside remainders
        const std::int64_t master = params == Tier::kNvme || replaced || kept ? 0 : 4 * early;
        // Gradients are read for the norm and the update at once.
        const std::int64_t grads = gradients == Tier::kNvme ? 4 * early : 0;
        EXPECT_EQ(with.disk_read, without.disk_read + master - grads);
      }
    }
  }
}

TEST(Speculation, TakesASecondPlaceForWhatItUpdates) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const Tier params : kAllTiers) {
      ShapeChoice choice = early_gradients();
      choice.dtype = dtype;
      choice.placement.parameters = params;
      const Program program = write_train_step(make_shape(choice));
      const bool remainders = params == Tier::kHost && dtype == DType::kBFloat16;
      std::int64_t expected = 0;
      std::int64_t on_host = 0;
      const auto page = [](std::int64_t bytes) { return (bytes + 4095) / 4096 * 4096; };
      for (const SecondPlace& place : second_places(program.chunks)) {
        expected += 2 * page(4 * place.elems) + page((remainders ? 2 : 4) * place.elems);
        if (remainders) on_host += 2 * place.elems;
        if (dtype == DType::kBFloat16 && params == Tier::kNvme) expected += page(2 * place.elems);
      }
      EXPECT_GT(expected, 0);
      choice.placement.speculate = false;
      const Program plain = write_train_step(make_shape(choice));
      EXPECT_EQ(add_up(program, Tier::kNvme).peak(), add_up(plain, Tier::kNvme).peak() + expected);
      EXPECT_EQ(on_host > 0, remainders);
      EXPECT_EQ(add_up(program, Tier::kHost).peak(), add_up(plain, Tier::kHost).peak() + on_host);
    }
  }
}

// Both opinions, where there is something to speculate on; then with each mark removed.
TEST(Speculation, IsSoundAndLosesNoMark) {
  int marks = 0;
  int unmarked = 0;
  for (int i = 0; i < 2 * kVariants; ++i) {
    const ShapeChoice choice = vary(early_gradients(true, kOffDevice[i % 2]), i / 2);
    const StepShape shape = make_shape(choice);
    Program train = write_train_step(shape);
    const bool master_is_read = choice.dtype == DType::kFloat32 &&
                                choice.placement.optimizer == Tier::kHost &&
                                choice.placement.parameters == Tier::kHost;
    EXPECT_TRUE(speculated_elems(train) > 0 || master_is_read) << name_of(choice);
    ASSERT_EQ(find_fault(train), "") << name_of(choice);
    for (std::uint64_t seed = 0; seed < 5; seed += kCaseStride) {
      ASSERT_EQ(play_steps(train, shape, seed), "") << name_of(choice) << ", seed " << seed;
    }
    for (Op& op : train.ops) {
      if (!op.speculative || ++marks % 5 != 0) continue;
      op.speculative = false;
      EXPECT_NE(find_fault(train), "") << name_of(choice);
      op.speculative = true;
      ++unmarked;
    }
  }
  EXPECT_GT(unmarked, 200);
}

// With gradients on the host, and no speculative update that would use the host then.
TEST(Squares, OnTheHostAreSummedWhileBackwardsRun) {
  for (const Tier optimizer : {Tier::kHost, Tier::kNvme}) {
    for (const bool speculate : {false, true}) {
      ShapeChoice choice = early_gradients(speculate, optimizer);
      choice.placement.gradients = Tier::kHost;
      choice.micro_batches = 3;
      const Program program = write_train_step(make_shape(choice));
      std::map<int, int> sums;  // by chunk
      bool under_backward = false;
      int heads = 0;
      for (const Op& op : program.ops) {
        heads += op.kind == OpKind::kLossHead ? 1 : 0;
        under_backward = under_backward || (op.kind == OpKind::kBackward && !sums.empty());
        if (op.kind != OpKind::kSumSquares) continue;
        EXPECT_EQ(heads, choice.micro_batches);
        EXPECT_EQ(++sums[op.chunk], 1);
      }
      EXPECT_EQ(under_backward, !speculate);
      EXPECT_EQ(sums.size(), speculate ? 0 : program.chunks.size());
    }
  }
}

// The disk is the longest lane: what it does under the backward, no forward waits for.
TEST(Speculation, AStepOnASlowDiskIsShorter) {
  const auto step_s = [](bool speculate) {
    ShapeChoice choice = early_gradients();
    choice.placement.speculate = speculate;
    choice.blocks = 12;
    const Program program = write_train_step(make_shape(choice));
    std::vector<double> seconds;
    for (const Op& op : program.ops) {
      const bool disk = op.lane == Lane::kDisk;
      seconds.push_back(disk                          ? static_cast<double>(op.moved_bytes) / 40'000
                        : op.kind == OpKind::kForward ? 0.5
                        : op.kind == OpKind::kBackward ? 1
                        : op.kind == OpKind::kLossHead ? 1.5
                                                       : 0);
    }
    return schedule(program, seconds, 1, false).step_s;
  };
  EXPECT_LT(step_s(true), 0.85 * step_s(false));
}

}  // namespace
}  // namespace sluice
