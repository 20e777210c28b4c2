// Updates before the norm is known: which chunks, when, and what they move.
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

TEST(Speculation, UpdatesChunksOnceUnderTheLastBackward) {
  for (const bool layer_major : {false, true}) {
    ShapeChoice choice = early_gradients();
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
    const std::map<OpKind, int> once = {{OpKind::kUpdate, 1},
                                        {OpKind::kReadStates, 1},
                                        {OpKind::kCopyGrads, 1},
                                        {OpKind::kWriteStates, 1}};
    for (const auto& [chunk, kinds] : seen) {
      EXPECT_TRUE(program.chunks[static_cast<std::size_t>(chunk)].speculated);
      EXPECT_EQ(kinds, once);
    }
    EXPECT_EQ(static_cast<std::size_t>(std::count_if(program.chunks.begin(), program.chunks.end(),
                                                     [](const Chunk& c) { return c.speculated; })),
              seen.size());
  }
}

// Two thirds of a step are backward; its share of the disk's work is no more.
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

TEST(Speculation, NeedsNvmeAGradientThatIsThereAndARingThatIsNotWhole) {
  const auto none = [](const ShapeChoice& choice) {
    const Program program = write_train_step(make_shape(choice));
    return std::none_of(program.ops.begin(), program.ops.end(),
                        [](const Op& op) { return op.speculative; }) &&
           speculated_elems(program) == 0;
  };
  ShapeChoice choice = early_gradients();
  EXPECT_FALSE(none(choice));
  choice.placement.optimizer = Tier::kHost;
  EXPECT_TRUE(none(choice));
  choice = early_gradients();
  choice.placement.speculate = false;
  EXPECT_TRUE(none(choice));
  choice = early_gradients();
  choice.placement.chunk_slots = 1000;  // all are in the ring when they are needed
  EXPECT_TRUE(none(choice));
  choice = early_gradients();
  choice.bucket_bytes = std::int64_t{1} << 40;  // one bucket, at the end of the step
  EXPECT_TRUE(none(choice));
}

// An unclipped step's deferred updates of these chunks read master weights at most.
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
        const std::int64_t master = params == Tier::kNvme ? 0 : 4 * early;
        // Gradients are read for the norm and the update at once.
        const std::int64_t grads = gradients == Tier::kNvme ? 4 * early : 0;
        EXPECT_EQ(with.disk_read, without.disk_read + master - grads);
      }
    }
  }
}

TEST(Speculation, TakesASecondPlaceForWhatItUpdates) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const Tier params : {Tier::kDevice, Tier::kNvme}) {
      ShapeChoice choice = early_gradients();
      choice.dtype = dtype;
      choice.placement.parameters = params;
      const Program program = write_train_step(make_shape(choice));
      std::int64_t expected = 0;
      const auto page = [](std::int64_t bytes) { return (bytes + 4095) / 4096 * 4096; };
      for (const SecondPlace& place : second_places(program.chunks)) {
        expected += 3 * page(4 * place.elems);
        if (dtype == DType::kBFloat16 && params == Tier::kNvme) expected += page(2 * place.elems);
      }
      EXPECT_GT(expected, 0);
      choice.placement.speculate = false;
      const Program plain = write_train_step(make_shape(choice));
      EXPECT_EQ(add_up(program, Tier::kNvme).peak(), add_up(plain, Tier::kNvme).peak() + expected);
      EXPECT_EQ(add_up(program, Tier::kHost).peak(), add_up(plain, Tier::kHost).peak());
    }
  }
}

// Both opinions, where there is something to speculate on; then with each mark removed.
TEST(Speculation, IsSoundAndLosesNoMark) {
  int marks = 0;
  int unmarked = 0;
  for (int i = 0; i < kVariants; ++i) {
    const ShapeChoice choice = vary(early_gradients(), i);
    const StepShape shape = make_shape(choice);
    Program train = write_train_step(shape);
    EXPECT_GT(speculated_elems(train), 0) << name_of(choice);
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
