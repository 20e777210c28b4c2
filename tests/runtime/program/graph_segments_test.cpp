#include "runtime/program/graph_segments.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/shapes.hpp"

namespace sluice {
namespace {

bool is_compute(const Op& op) {
  const bool runs_unit = op.kind == OpKind::kForward || op.kind == OpKind::kLossHead ||
                         op.kind == OpKind::kBackward || op.kind == OpKind::kBackwardWeights;
  return runs_unit || (op.kind == OpKind::kGather && op.lane == Lane::kCompute);
}

std::string text_of(const std::vector<GraphSegment>& segments) {
  std::string text;
  for (const GraphSegment& s : segments) {
    text += std::to_string(s.begin) + "-" + std::to_string(s.end) + " ";
  }
  return text;
}

// The operations are those of ProgramText.ListOfASmallStage3Step.
TEST(GraphSegments, OthersOperationsAndWaitsCutTheCompute) {
  const Program program = write_train_step(make_shape({.stage = 3, .blocks = 2}));
  EXPECT_EQ(text_of(graph_segments(program)), "4-5 8-9 11-12 12-13 15-16 18-19 21-22 ");
}

// Batches are read between them.
TEST(GraphSegments, OfARankAloneAreItsMicroBatches) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int micro_batches : {1, 3}) {
      StepShape shape = make_shape({.stage = stage,
                                    .dp = 1,
                                    .micro_batches = micro_batches,
                                    .dtype = DType::kFloat16,
                                    .rounds = stage == 3});
      shape.reduce_every = ReduceEvery::kStep;
      for (GroupShape& group : shape.groups) group.resident = stage < 3;
      const Program program = write_train_step(shape);
      EXPECT_EQ(std::ssize(graph_segments(program)), micro_batches) << "stage " << stage;
      for (const Op& op : program.ops) EXPECT_EQ(op.lane, Lane::kCompute) << "stage " << stage;
    }
  }
}

// So that the host is never far ahead of the GPU where copies wait behind its launches.
TEST(GraphSegments, BesideCopiesBetweenTiersAreShort) {
  for (const Tier gradients : {Tier::kDevice, Tier::kHost}) {
    StepShape shape = make_shape({.stage = 2, .dp = 1, .micro_batches = 20, .layer_major = true});
    for (GroupShape& group : shape.groups) group.resident = true;
    const auto longest = [](const Program& program) {
      int most = 0;
      for (const GraphSegment& s : graph_segments(program)) most = std::max(most, s.end - s.begin);
      return most;
    };
    EXPECT_GE(longest(write_train_step(shape)), 20);
    shape.placement.optimizer = Tier::kHost;
    shape.placement.gradients = gradients;
    EXPECT_EQ(longest(write_train_step(shape)), kSegmentOpsBesideCopies);
  }
}

TEST(GraphSegments, HaveEachUnitOnceAndWaitOnlyAtTheirBeginning) {
  for_each_choice([](const ShapeChoice& choice) {
    const Program program = write_train_step(make_shape(choice));
    std::vector<bool> seen(program.ops.size(), false);
    for (const GraphSegment& segment : graph_segments(program)) {
      ASSERT_LT(segment.begin, segment.end) << name_of(choice);
      for (OpId i = segment.begin; i < segment.end; ++i) {
        ASSERT_FALSE(nth(seen, i)) << name_of(choice);
        seen[static_cast<std::size_t>(i)] = true;
        ASSERT_TRUE(i == segment.begin || nth(program.ops, i).waits.empty()) << name_of(choice);
      }
    }
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (program.ops[i].kind == OpKind::kRelease) continue;
      ASSERT_EQ(seen[i], is_compute(program.ops[i])) << name_of(choice) << ", operation " << i;
    }
  });
}

}  // namespace
}  // namespace sluice
