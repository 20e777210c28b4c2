#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "runtime/program/write/arena_plan.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/shapes.hpp"

namespace sluice {
namespace {

struct ArenaFacts {
  std::int64_t bound = 0;  // the most that is alive at once, each slot rounded up
  std::string fault;       // empty if no two living slots share bytes
};

ArenaFacts look_at(const Program& program) {
  ArenaFacts facts;
  std::vector<std::size_t> alive;
  const auto begin = [&](std::size_t b) { return program.buffers[b].arena_offset; };
  const auto end = [&](std::size_t b) { return begin(b) + program.buffers[b].bytes; };
  const auto remove = [&](const std::vector<BufferId>& ids) {
    for (const BufferId b : ids) std::erase(alive, static_cast<std::size_t>(b));
  };
  for (const Op& op : program.ops) {
    remove(op.dead_before);
    for (const BufferId id : op.live) {
      const auto b = static_cast<std::size_t>(id);
      if (!program.buffers[b].in_arena) continue;
      for (const std::size_t other : alive) {
        if (begin(b) < end(other) && begin(other) < end(b)) facts.fault = "two slots share bytes";
      }
      if (begin(b) % kArenaAlignBytes != 0) facts.fault = "a slot is not aligned";
      if (begin(b) < 0 || end(b) > program.arena_bytes) facts.fault = "a slot lies outside";
      alive.push_back(b);
    }
    std::int64_t bytes = 0;
    for (const std::size_t b : alive) bytes += round_up(program.buffers[b].bytes, kArenaAlignBytes);
    facts.bound = std::max(facts.bound, bytes);
    remove(op.dead_after);
  }
  return facts;
}

TEST(Arena, SlotsNeverShareBytesAndWasteLittle) {
  // Of few slots a gap is more. A rank alone has no slots of gradients with one micro-batch, and
  // one slot a unit holds the sum of micro-batches where layer order reduces once.
  std::array<double, 2> worst{1, 1};
  std::array<std::string, 2> where{"nowhere", "nowhere"};
  for_each_choice([&](const ShapeChoice& choice) {
    const StepShape shape = make_shape(choice);
    for (const bool training : {true, false}) {
      const Program program = training ? write_train_step(shape) : write_eval_step(shape);
      const ArenaFacts facts = look_at(program);
      ASSERT_EQ(facts.fault, "") << name_of(choice);
      ASSERT_GE(program.arena_bytes, facts.bound) << name_of(choice);
      const double ratio =
          static_cast<double>(program.arena_bytes) / static_cast<double>(facts.bound);
      const bool once = choice.stage > 1 && choice.reduce_every == ReduceEvery::kStep;
      const std::size_t few = once || (choice.dp == 1 && choice.micro_batches == 1) ? 1 : 0;
      if (ratio <= worst[few]) continue;
      worst[few] = ratio;
      where[few] = name_of(choice) + (training ? "" : ", eval");
    }
  });
  EXPECT_LE(worst[0], 1.25) << where[0];
  EXPECT_LE(worst[1], 1.45) << where[1];
  RecordProperty("worst_ratio_percent", static_cast<int>(worst[0] * 100));
}

Program slots(const std::vector<std::array<int, 3>>& lives) {  // bytes, first and last operation
  Program program;
  program.ops.resize(16);
  for (const auto& [bytes, first, last] : lives) {
    program.ops[static_cast<std::size_t>(first)].live.push_back(
        static_cast<BufferId>(program.buffers.size()));
    program.ops[static_cast<std::size_t>(last)].dead_after.push_back(
        static_cast<BufferId>(program.buffers.size()));
    program.buffers.push_back({.tag = Tag::kLossHead, .bytes = bytes, .in_arena = true});
  }
  assign_arena(program);
  return program;
}

TEST(Arena, LivesThatDoNotMeetShareBytes) {
  EXPECT_EQ(slots({{512, 0, 1}, {512, 2, 3}, {512, 4, 4}}).arena_bytes, 512);
  EXPECT_EQ(slots({{512, 0, 2}, {512, 2, 3}}).arena_bytes, 1024);
  EXPECT_EQ(slots({}).arena_bytes, 0);
}

TEST(Arena, AnEmptySlotIsNowhereInTheWay) {
  const Program program = slots({{300, 0, 3}, {0, 1, 2}, {300, 1, 2}});
  EXPECT_EQ(look_at(program).fault, "");
  EXPECT_EQ(program.arena_bytes, 1024);
}

TEST(Arena, AHoleIsUsed) {
  // a 512 | b 256 | c 512: when b is gone, d of 256 fits between a and c.
  EXPECT_EQ(slots({{512, 0, 9}, {512, 0, 9}, {256, 0, 4}, {256, 5, 9}}).arena_bytes, 1280);
}

TEST(Arena, SmallSlotsMakeNoHolesBetweenLargeOnes) {
  // At most 12288, 8192 and 256 are alive at once. Placed by size, two slots of 8192 lie above
  // 12288.
  const Program program =
      slots({{8192, 1, 4}, {256, 3, 6}, {12288, 5, 6}, {8192, 6, 8}, {8192, 7, 9}, {12288, 9, 9}});
  EXPECT_EQ(look_at(program).fault, "");
  EXPECT_EQ(program.arena_bytes, 12288 + 8192 + 256);
}

TEST(Arena, RefusesASlotThatNeverDies) {
  Program program;
  program.ops.resize(1);
  program.ops[0].live.push_back(0);
  program.buffers.push_back({.tag = Tag::kLossHead, .bytes = 256, .in_arena = true});
  EXPECT_THROW(assign_arena(program), Error);
}

}  // namespace
}  // namespace sluice
