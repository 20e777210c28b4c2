// Gradients that are rounded on the device (GroupShape::rounds_gradients).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/index.hpp"
#include "runtime/program/check/program_check.hpp"
#include "runtime/program/model/memory_model.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/replay.hpp"
#include "tests/runtime/program/shapes.hpp"

namespace sluice {
namespace {

constexpr int kBlocks = 3;

bool is_block(int g) { return g >= 2 && g < kBlocks + 2; }

// A rank alone, in every stage, with one micro-batch and with several in layer order.
std::vector<ShapeChoice> lone_choices() {
  std::vector<ShapeChoice> all;
  for (int i = 0; i < 4 * 2 * 2 * 2; ++i) {
    ShapeChoice choice{.stage = i % 4,
                       .dp = 1,
                       .recompute = i / 4 % 2 == 1,
                       .tied = i / 8 % 2 == 1,
                       .dtype = DType::kBFloat16,
                       .blocks = kBlocks};
    if (i / 16 == 1) {
      choice.micro_batches = 3;
      choice.layer_major = true;
      choice.reduce_every = ReduceEvery::kStep;
    }
    all.push_back(choice);
  }
  return all;
}

StepShape rounding(const ShapeChoice& choice) {
  StepShape shape = make_shape(choice);
  shape.placement.gradients_dtype = DType::kBFloat16;
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    nth(shape.groups, g).rounds_gradients = is_block(g);
  }
  return shape;
}

TEST(RoundedGradients, AreRoundedOnceTheyAreComplete) {
  for (const ShapeChoice& choice : lone_choices()) {
    for (const bool passes : {false, true}) {
      StepShape shape = rounding(choice);
      if (passes) shape = passing(shape);
      const Program program = write_train_step(shape);
      ASSERT_EQ(find_fault(program), "") << name_of(choice);
      const ReplayResult played = replay(program, shape, true);
      EXPECT_EQ(played.fault, "") << name_of(choice);
      EXPECT_EQ(played.waste, "") << name_of(choice);
      const auto rounds = std::count_if(program.ops.begin(), program.ops.end(), [](const Op& op) {
        return op.kind == OpKind::kRoundGrads;
      });
      EXPECT_EQ(rounds, kBlocks) << name_of(choice);
    }
  }
}

TEST(RoundedGradients, TakeTwoBytesAnElementLess) {
  for (const ShapeChoice& choice : lone_choices()) {
    const StepShape shape = rounding(choice);
    const Program narrow = write_train_step(shape);
    const Program wide = write_train_step(make_shape(choice));
    std::int64_t less = 0;
    for (int g = 2; g < kBlocks + 2; ++g) less += 2 * nth(shape.groups, g).elems;
    EXPECT_EQ(add_up(narrow, Tier::kDevice).persistent,
              add_up(wide, Tier::kDevice).persistent - less)
        << name_of(choice);
    for (const StateRow& row : narrow.states.rows) {
      if (row.tag != Tag::kGradients) continue;
      EXPECT_EQ(row.dtype, is_block(row.group) ? DType::kBFloat16 : DType::kFloat32);
    }
  }
}

TEST(RoundedGradients, EveryRoundingThatIsMissingOrElsewhereIsAFault) {
  for (const ShapeChoice& choice : lone_choices()) {
    const Program sound = write_train_step(rounding(choice));
    for (std::size_t i = 0; i < sound.ops.size(); ++i) {
      if (sound.ops[i].kind != OpKind::kRoundGrads) continue;
      Program broken = sound;  // nothing rounds, and the slot is given back all the same
      broken.ops[i].kind = OpKind::kRelease;
      EXPECT_NE(find_fault(broken), "") << name_of(choice) << " " << i;
      broken = sound;  // another group's gradients
      broken.ops[i].group = 0;
      EXPECT_NE(find_fault(broken), "") << name_of(choice) << " " << i;
      broken = sound;  // behind the norm
      const auto norm = std::find_if(broken.ops.begin(), broken.ops.end(),
                                     [](const Op& op) { return op.kind == OpKind::kNormAndScale; });
      std::rotate(broken.ops.begin() + static_cast<std::ptrdiff_t>(i),
                  broken.ops.begin() + static_cast<std::ptrdiff_t>(i) + 1, norm + 1);
      EXPECT_NE(find_fault(broken), "") << name_of(choice) << " " << i;
      broken = sound;  // gradients of a backward that is still to come
      std::swap(broken.ops[i], broken.ops[i - 1]);
      EXPECT_NE(find_fault(broken), "") << name_of(choice) << " " << i;
    }
  }
}

}  // namespace
}  // namespace sluice
