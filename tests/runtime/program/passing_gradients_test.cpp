// Gradients that exist from their backward to the last update (GroupShape::passing_gradient_bytes).
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "runtime/program/check/program_check.hpp"
#include "runtime/program/model/memory_model.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/shapes.hpp"

namespace sluice {
namespace {

StepShape passing(StepShape shape) {
  for (GroupShape& group : shape.groups) group.passing_gradient_bytes = group.elems * 4;
  return shape;
}

// One micro-batch, or several in layer order.
std::vector<ShapeChoice> choices() {
  std::vector<ShapeChoice> all;
  for (const int stage : {0, 1, 2, 3}) {
    for (const int micro_batches : {1, 3}) {
      for (const bool tied : {false, true}) {
        for (const bool recompute : {false, true}) {
          all.push_back(
              {.stage = stage,
               .dp = 1,
               .micro_batches = micro_batches,
               .layer_major = micro_batches > 1,
               .recompute = recompute,
               .reduce_every = micro_batches > 1 ? ReduceEvery::kStep : ReduceEvery::kMicroBatch,
               .tied = tied,
               .dtype = DType::kBFloat16,
               .blocks = 7});
        }
      }
    }
  }
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
    ASSERT_EQ(gradients.size(), shape.groups.size()) << name_of(choice);
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
    for (const StateRow& row : program.states.rows) EXPECT_NE(row.tag, Tag::kGradients);
  }
}

TEST(PassingGradients, TakeThePlaceOfActivations) {
  for (const ShapeChoice& choice : choices()) {
    const StepShape shape = make_shape(choice);
    const MemoryReport kept = add_up(write_train_step(shape), Tier::kDevice);
    const MemoryReport now = add_up(write_train_step(passing(shape)), Tier::kDevice);
    std::int64_t gradients = 0;
    for (const GroupShape& group : shape.groups) gradients += 4 * group.elems;
    EXPECT_EQ(now.persistent, kept.persistent - gradients) << name_of(choice);
    EXPECT_LE(now.peak(), kept.peak()) << name_of(choice);
    // The backward that meets all activations meets the gradients of the last block at most.
    if (!choice.recompute && !choice.tied) {
      EXPECT_LT(now.peak(), kept.peak()) << name_of(choice);
    }
  }
}

TEST(PassingGradients, TheCheckerMissesNoneOfThem) {
  const Program program = write_train_step(passing(make_shape({.dp = 1, .tied = true})));
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

TEST(PassingGradients, AreRefusedWhereGradientsAreReduced) {
  EXPECT_THROW((void)write_train_step(passing(make_shape({.dp = 2}))), Error);
  EXPECT_THROW((void)write_train_step(passing(make_shape({.dp = 1, .micro_batches = 2}))), Error);
  ShapeChoice away{.dp = 1};
  away.placement.optimizer = Tier::kHost;
  EXPECT_THROW((void)write_train_step(passing(make_shape(away))), Error);
}

}  // namespace
}  // namespace sluice
