// Gradients that exist from their backward to an update (GroupShape::passing_gradient_bytes).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/program/check/first_fault.hpp"
#include "runtime/program/check/program_check.hpp"
#include "runtime/program/model/memory_model.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/shapes.hpp"

namespace sluice {
namespace {

int count_passing(const StepShape& shape) {
  return static_cast<int>(
      std::count_if(shape.groups.begin(), shape.groups.end(),
                    [](const GroupShape& g) { return g.passing_gradient_bytes > 0; }));
}

// One micro-batch, or several in layer order, whose gradients are reduced once or each by itself.
std::vector<ShapeChoice> choices() {
  std::vector<ShapeChoice> all;
  for (int i = 0; i < 4 * 3 * 3 * 2 * 2; ++i) {
    const int order = i / 4 % 3;
    const ShapeChoice choice{
        .stage = i / 36,
        .dp = 1 + i / 12 % 3,
        .micro_batches = order > 0 ? 3 : 1,
        .layer_major = order > 0,
        .recompute = i % 2 == 1,
        .reduce_every = order == 1 ? ReduceEvery::kStep : ReduceEvery::kMicroBatch,
        .tied = i / 2 % 2 == 1,
        .dtype = DType::kBFloat16,
        .blocks = 7};
    if (may_pass_gradients(make_shape(choice))) all.push_back(choice);
  }
  EXPECT_GT(all.size(), 100U);
  return all;
}

std::vector<BufferId> gradients_of(const Program& program) {
  std::vector<BufferId> ids;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    if (program.buffers[b].tag == Tag::kGradients) ids.push_back(static_cast<BufferId>(b));
  }
  return ids;
}

TEST(PassingGradients, LiveFromTheirOpeningToTheLastUpdate) {
  for (const ShapeChoice& choice : choices()) {
    const StepShape shape = passing(make_shape(choice));
    const Program program = write_train_step(shape);
    ASSERT_EQ(find_fault(program), "") << name_of(choice);
    const std::vector<BufferId> gradients = gradients_of(program);
    ASSERT_EQ(gradients.size(), count_passing(shape)) << name_of(choice);
    ASSERT_GE(gradients.size(), 7U) << name_of(choice);
    for (const Op& op : program.ops) {
      for (const BufferId b : op.live) {
        const Buffer& buffer = nth(program.buffers, b);
        if (buffer.tag != Tag::kGradients) continue;
        EXPECT_NE(std::find(op.opens.begin(), op.opens.end(), buffer.group), op.opens.end());
      }
    }
    const Op& last = program.ops.back();
    ASSERT_EQ(last.kind, OpKind::kUpdate);
    EXPECT_EQ(last.dead_after.size(), gradients.size());
    for (const StateRow& row : program.states.rows) {
      if (row.tag != Tag::kGradients) continue;
      EXPECT_EQ(nth(shape.groups, row.group).passing_gradient_bytes, 0) << name_of(choice);
    }
  }
}

TEST(PassingGradients, TakeThePlaceOfActivations) {
  for (const ShapeChoice& choice : choices()) {
    const StepShape shape = make_shape(choice);
    const MemoryReport kept = add_up(write_train_step(shape), Tier::kDevice);
    const StepShape passes = passing(shape);
    const MemoryReport now = add_up(write_train_step(passes), Tier::kDevice);
    std::int64_t gradients = 0;
    for (const GroupShape& group : passes.groups) gradients += group.passing_gradient_bytes;
    EXPECT_EQ(now.persistent, kept.persistent - gradients) << name_of(choice);
    EXPECT_LE(now.peak(), kept.peak()) << name_of(choice);
    // The backward that meets all activations meets the gradients of the last block at most.
    if (!choice.recompute && !choice.tied) {
      EXPECT_LT(now.peak(), kept.peak()) << name_of(choice);
    }
  }
}

class PassingGradientsOf : public testing::TestWithParam<ShapeChoice> {};

TEST_P(PassingGradientsOf, EveryMissingOneIsAFault) {
  const Program program = write_train_step(passing(make_shape(GetParam())));
  for (const BufferId b : gradients_of(program)) {
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      const auto lives = std::find(program.ops[i].live.begin(), program.ops[i].live.end(), b);
      if (lives == program.ops[i].live.end()) continue;
      Program late = program;  // the next operation gives the memory
      std::erase(late.ops[i].live, b);
      late.ops[i + 1].live.push_back(b);
      EXPECT_NE(find_fault(late), "") << b;
    }
    Program early = program;  // the norm frees it
    std::erase(early.ops.back().dead_after, b);
    for (Op& op : early.ops) {
      if (op.kind == OpKind::kNormAndScale) op.dead_after.push_back(b);
    }
    EXPECT_NE(find_fault(early), "") << b;
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, PassingGradientsOf,
                         testing::Values(ShapeChoice{.dp = 1, .tied = true},
                                         ShapeChoice{.stage = 1, .tied = true},
                                         ShapeChoice{.stage = 3, .dp = 3}));

int count_updates(const Program& program, bool in_backward) {
  return static_cast<int>(std::count_if(program.ops.begin(), program.ops.end(), [&](const Op& op) {
    return op.kind == OpKind::kUpdate && op.in_backward == in_backward;
  }));
}

TEST(UpdatesInBackward, FreeTheirGradients) {
  for (const ShapeChoice& choice : choices()) {
    const StepShape shape = passing(make_shape(choice), /*updates_in_backward=*/true);
    const Program program = write_train_step(shape);
    ASSERT_EQ(find_fault(program), "") << name_of(choice);
    const int passes = count_passing(shape);
    EXPECT_EQ(count_updates(program, true), passes) << name_of(choice);
    EXPECT_EQ(count_updates(program, false), static_cast<int>(shape.groups.size()) - passes);
    for (const Op& op : program.ops) {
      if (!op.in_backward) continue;
      ASSERT_EQ(op.dead_after.size(), 1U);
      EXPECT_EQ(nth(program.buffers, op.dead_after.front()).group, op.group);
    }
  }
}

// A rank alone has one block's gradients at a time. Of several ranks, the update of a block waits
// for its reduction while the next backward runs.
TEST(UpdatesInBackward, FollowTheBackwardOfTheirGroup) {
  for (const int dp : {1, 3}) {
    const StepShape shape = make_shape({.stage = 1, .dp = dp, .bucket_bytes = 1000, .blocks = 7});
    const Program program = write_train_step(passing(shape, true));
    int alive = 0, most = 0;
    for (const Op& op : program.ops) {
      for (const BufferId b : op.live) {
        const Buffer& buffer = nth(program.buffers, b);
        const bool block = buffer.tag == Tag::kGradients && buffer.group > 1 && buffer.group < 9;
        alive += block ? 1 : 0;
      }
      most = std::max(most, alive);
      if (op.in_backward && op.group > 1 && op.group < 9) --alive;
    }
    EXPECT_EQ(most, dp == 1 ? 1 : 3);
  }
}

TEST(UpdatesInBackward, NeedNoRoomForAllGradients) {
  for (const ShapeChoice& choice : choices()) {
    const StepShape shape = make_shape(choice);
    const auto peak = [](const StepShape& of) {
      return add_up(write_train_step(of), Tier::kDevice).peak();
    };
    EXPECT_LE(peak(passing(shape, true)), peak(passing(shape))) << name_of(choice);
    // Without activations that leave, all gradients of a rank alone meet in its last backward.
    if (choice.recompute && choice.dp == 1) {
      EXPECT_LT(peak(passing(shape, true)), peak(passing(shape))) << name_of(choice);
    }
  }
}

// Gradients of replicas are added before the norm.
TEST(UpdatesInBackward, NotOfReplicas) {
  StepShape shape = passing(make_shape({.stage = 1, .blocks = 3}), true);
  shape.tensor = 2;
  nth(shape.groups, 3).add_replicas = true;
  const Program program = write_train_step(shape);
  ASSERT_EQ(find_fault(program), "");
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::kUpdate) {
      EXPECT_EQ(op.in_backward, op.group != 3) << op.group;
    }
  }
}

TEST(UpdatesInBackward, EveryUseOfAGroupBehindItsUpdateIsAFault) {
  for (const ShapeChoice& choice : choices()) {
    const Program program = write_train_step(passing(make_shape(choice), true));
    const auto update = std::find_if(program.ops.begin(), program.ops.end(),
                                     [](const Op& op) { return op.in_backward; });
    ASSERT_NE(update, program.ops.end());
    const auto first = static_cast<OpId>(update - program.ops.begin());
    for (OpId i = first + 1; nth(program.ops, i).kind != OpKind::kNormAndScale; ++i) {
      if (nth(program.ops, i).kind != OpKind::kBackward) continue;
      Program reads = program;
      nth(reads.ops, i).reads.push_back(update->group);
      // A gathered group's slot is gone too.
      if (choice.stage == 3) {
        EXPECT_NE(find_fault(reads), "") << name_of(choice);
      } else {
        EXPECT_EQ(find_fault(reads), name_in_fault(reads, i) + "uses a group that was updated");
      }
    }
  }
}

// Behind its update in the backward a group has no gradients left either.
TEST(UpdatesInBackward, NoGroupIsUpdatedTwice) {
  for (const ShapeChoice& choice : choices()) {
    Program twice = write_train_step(passing(make_shape(choice)));
    const auto id = static_cast<OpId>(twice.ops.size());
    twice.ops.push_back(twice.ops.back());
    nth(twice.ops, id - 1).dead_after.clear();
    EXPECT_EQ(find_fault(twice), name_in_fault(twice, id) + "updates a group a second time");
  }
}

// The writer gathers no group that has no reader left.
TEST(UpdatesInBackward, AGatherThatNobodyWaitedForIsAFault) {
  const Program program = write_train_step(passing(make_shape({.stage = 1, .blocks = 3}), true));
  const auto update = std::find_if(program.ops.begin(), program.ops.end(),
                                   [](const Op& op) { return op.in_backward; });
  Program broken = program;
  const auto id = static_cast<OpId>(update - program.ops.begin());
  broken.ops.insert(broken.ops.begin() + id,
                    {.kind = OpKind::kGather, .lane = Lane::kComm, .group = update->group});
  for (Op& op : broken.ops) {
    for (OpId& w : op.waits) w += w >= id ? 1 : 0;
  }
  EXPECT_EQ(find_fault(broken),
            name_in_fault(broken, id + 1) + "updates parameters that are being gathered");
}

TEST(PassingGradients, AreARanksShardInStages2And3) {
  for (const int stage : {0, 1, 2, 3}) {
    const StepShape shape = passing(make_shape({.stage = stage, .dp = 3}));
    const Program program = write_train_step(shape);
    ASSERT_FALSE(gradients_of(program).empty()) << stage;
    for (const BufferId b : gradients_of(program)) {
      const Buffer& buffer = nth(program.buffers, b);
      const GroupShape& group = nth(shape.groups, buffer.group);
      EXPECT_EQ(buffer.bytes, 4 * (stage < 2 ? group.elems : group.shard_elems));
    }
  }
}

// The reduction of a bucket, not its writers alone, needs the memory.
TEST(PassingGradients, AreCheckedWhereTheyAreReduced) {
  const Program program = write_train_step(passing(make_shape({.stage = 2})));
  const auto reduction = std::find_if(program.ops.begin(), program.ops.end(),
                                      [](const Op& op) { return op.kind == OpKind::kReduceGrads; });
  ASSERT_NE(reduction, program.ops.end());
  const int group = nth(program.buckets, reduction->bucket).front().group;
  const auto id = static_cast<OpId>(reduction - program.ops.begin());
  Program freed = program;
  for (const BufferId b : gradients_of(program)) {
    if (nth(program.buffers, b).group == group) nth(freed.ops, id).dead_before.push_back(b);
  }
  EXPECT_EQ(find_fault(freed), name_in_fault(freed, id) +
                                   "needs memory of the gradients of group " +
                                   std::to_string(group) + ", which are not alive");
}

TEST(PassingGradients, AreRefusedBesideASumOfMicroBatchesAndOffTheDevice) {
  EXPECT_THROW((void)write_train_step(passing(make_shape({.dp = 2, .micro_batches = 2}))), Error);
  EXPECT_THROW((void)write_train_step(passing(make_shape({.dp = 1, .micro_batches = 2}))), Error);
  ShapeChoice away{.dp = 1};
  away.placement.optimizer = Tier::kHost;
  EXPECT_THROW((void)write_train_step(passing(make_shape(away))), Error);
  StepShape updated = make_shape(away);
  updated.updates_in_backward = true;
  EXPECT_THROW((void)write_train_step(updated), Error);
}

}  // namespace
}  // namespace sluice
