#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "runtime/program/program_text.hpp"
#include "runtime/program/step_writer.hpp"
#include "tests/runtime/program/shapes.hpp"

namespace sluice {
namespace {

// A change of schedule shows here: read the difference, then renew the text.
TEST(ProgramText, ListOfASmallStage3Step) {
  const Program program = write_train_step(make_shape({.stage = 3, .blocks = 2}));
  EXPECT_EQ(list(program),
            R"(   # lane    operation                  mb      live      dead      held  waits for
   0 compute LoadBatch                   0     192 B         -     192 B
   1 comm    Gather group 0              -  9.25 KiB         -  9.44 KiB
   2 comm    Gather group 1              -  1.50 KiB         -  10.9 KiB
   3 comm    Gather group 2              -  19.2 KiB         -  30.2 KiB
   4 compute Forward unit 0              0  1.12 KiB         -  32.4 KiB  1-2
   5 compute Release group 0             -         -  9.25 KiB  31.3 KiB
   6 compute Release group 1             -         -  1.50 KiB  22.1 KiB
   7 comm    Gather group 3              -  19.2 KiB         -  39.8 KiB
   8 compute Forward unit 1              0  11.2 KiB         -  53.3 KiB  3
   9 compute Release group 2             -         -  19.2 KiB  51.1 KiB
  10 comm    Gather group 4              -  9.25 KiB         -  41.1 KiB
  11 compute Forward unit 2              0  11.3 KiB         -  54.6 KiB  7
  12 compute LossHead unit 3             0  14.9 KiB  5.67 KiB  69.5 KiB  10
  13 compute Release group 4             -         -  9.25 KiB  61.6 KiB
  14 comm    Gather group 2              -  19.2 KiB         -  71.6 KiB
  15 compute Backward unit 2             0  20.4 KiB  12.4 KiB  97.6 KiB
  16 comm    ReduceGrads bucket 0        0         -         -  79.6 KiB
  17 compute Release group 3             -         -  19.2 KiB  79.6 KiB
  18 compute Backward unit 1             0  20.4 KiB  12.4 KiB  86.3 KiB  14
  19 comm    ReduceGrads bucket 1        0         -         -  68.3 KiB
  20 compute Release group 2             -         -  19.2 KiB  68.3 KiB
  21 compute Backward unit 0             0  10.8 KiB  10.6 KiB  50.8 KiB  16
  22 comm    ReduceGrads bucket 2        0         -         -  49.2 KiB
  23 compute NormAndScale                -         -  49.2 KiB         -  16 19 22
  24 compute Update group 0              -         -         -         -  23
  25 compute Update group 1              -         -         -         -  23
  26 compute Update group 2              -         -         -         -  23
  27 compute Update group 3              -         -         -         -  23
  28 compute Update group 4              -         -         -         -  23
)");
}

TEST(ProgramText, PictureOfASmallStage3Step) {
  const Program program = write_train_step(make_shape({.stage = 3, .blocks = 2}));
  const std::vector<std::string> names = {"embedding", "h.0", "h.1", "head"};
  EXPECT_EQ(draw(program, names),
            R"(G gather a group's parameters, F forward, L loss head, B backward
R reduce-scatter a bucket of gradients, N norm, U update
units: 0 embedding, 1 h.0, 2 h.1, 3 head
micro-batch 0
  compute          F0    F1    F2 L    B2    B1    B0
  comm    G0 G1 G2 -- G3 -- G4 --   G2 -- R0 -- R1 -- R2
update
  compute N U
)");
}

TEST(ProgramText, MicroBatchesThatLookAlikeAreDrawnOnce) {
  const Program program =
      write_train_step(make_shape({.stage = 0, .micro_batches = 5, .blocks = 3}));
  EXPECT_EQ(
      draw(program, {}),
      R"(F forward, L loss head, B backward, R reduce-scatter a bucket of gradients, A all-gather it
N norm, U update
micro-batch 0
  compute F0 F1 F2 F3 L B3    B2    B1    B0
  comm                     R0 -- R1 -- R2 -- R3 R4
micro-batch 1, and the same to micro-batch 3
  compute F0 F1 F2 F3 L B3    B2    B1    B0
  comm    -- -- -- -- - -- R0 -- R1 -- R2 -- R3 R4
micro-batch 4
  compute F0 F1 F2 F3 L B3       B2       B1       B0
  comm    -- -- -- -- - -- R0 A0 -- R1 A1 -- R2 A2 -- R3 A3 R4 A4
update
  compute N U
)");
}

TEST(ProgramText, PictureOfAnEvaluation) {
  const Program program = write_eval_step(make_shape({.stage = 1, .blocks = 1}));
  EXPECT_EQ(draw(program, {}), R"(G gather a group's parameters, F forward, L loss head
micro-batch 0
  compute             F0 F1 L
  comm    G0 G1 G2 G3 -- --
)");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string numbered(char letter, int number) {
  return std::string(1, letter).append(std::to_string(number));
}

// A row is broken at the same operation on both lanes, and nothing is lost on the way.
TEST(ProgramText, ALongStepStaysWithin96ColumnsAndLosesNothing) {
  const StepShape shape =
      make_shape({.stage = 3, .bucket_bytes = 3000, .tied = true, .blocks = 40});
  const Program program = write_train_step(shape);
  std::vector<std::string> names;
  for (std::size_t u = 0; u < shape.units.size(); ++u)
    names.push_back(numbered('u', static_cast<int>(u)));
  std::vector<std::string> drawn;
  for (const std::string& line : lines_of(draw(program, names))) {
    EXPECT_LE(line.size(), 96U) << line;
    EXPECT_FALSE(line.ends_with(' ')) << line;
    if (!line.starts_with("  co")) continue;
    std::istringstream words(line.substr(10));
    for (std::string word; words >> word;) {
      if (word[0] != '-') drawn.push_back(word);
    }
  }
  std::vector<std::string> expected = {"L", "N", "U"};
  int buckets = 0;
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::kGather) expected.push_back(numbered('G', op.group));
    if (op.kind == OpKind::kForward) expected.push_back(numbered('F', op.unit));
    if (op.kind == OpKind::kBackward) expected.push_back(numbered('B', op.unit));
    if (op.kind == OpKind::kReduceGrads) expected.push_back(numbered('R', buckets++));
  }
  std::sort(drawn.begin(), drawn.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(drawn, expected);
}

TEST(ProgramText, TheListHasALineAnOperation) {
  for (const int stage : {0, 1, 2, 3}) {
    const Program program =
        write_train_step(make_shape({.stage = stage, .micro_batches = 12, .blocks = 7}));
    const std::vector<std::string> lines = lines_of(list(program));
    ASSERT_EQ(lines.size(), program.ops.size() + 1);
    for (const std::string& line : lines) EXPECT_LE(line.size(), 140U) << line;
  }
  EXPECT_EQ(lines_of(list(Program{})).size(), 1U);
  EXPECT_EQ(draw(Program{}, {}), "\n");
}

}  // namespace
}  // namespace sluice
