#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "runtime/program/program_text.hpp"
#include "runtime/program/write/step_writer.hpp"
#include "tests/runtime/program/shapes.hpp"
#include "tests/runtime/program/stages.hpp"

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

StepShape small_nvme_shape() {
  ShapeChoice choice{.stage = 3, .recompute = true, .blocks = 2};
  choice.placement.optimizer = Tier::kNvme;
  choice.placement.parameters = Tier::kNvme;
  choice.placement.gradients = Tier::kNvme;
  choice.placement.activations = Tier::kNvme;
  choice.placement.chunk_slots = 2;
  return make_shape(choice);
}

TEST(ProgramText, ListOfASmallNvmeStep) {
  EXPECT_EQ(list(write_train_step(small_nvme_shape())),
            R"(   # lane    operation                  mb      live      dead      held  waits for
   0 compute LoadBatch                   0     192 B         -     192 B
   1 disk    ReadGrads group 0 chunk 0   -         -         -     192 B
   2 disk    ReadGrads group 1 chunk 1   -         -         -     192 B
   3 host    Update group 0 chunk 0      -         -         -     192 B  1
   4 disk    WriteStates group 0 chunk 0  -         -         -     192 B  3
   5 disk    ReadStates group 2 chunk 2  -         -         -     192 B  4
   6 disk    ReadGrads group 2 chunk 2   -         -         -     192 B  3
   7 host    Update group 1 chunk 1      -         -         -     192 B  2
   8 disk    WriteStates group 1 chunk 1  -         -         -     192 B  7
   9 disk    ReadStates group 3 chunk 3  -         -         -     192 B  8
  10 disk    ReadGrads group 3 chunk 3   -         -         -     192 B  7
  11 host    Update group 2 chunk 2      -         -         -     192 B  5-6
  12 disk    WriteStates group 2 chunk 2  -         -         -     192 B  11
  13 disk    ReadStates group 4 chunk 4  -         -         -     192 B  12
  14 disk    ReadGrads group 4 chunk 4   -         -         -     192 B  11
  15 host    Update group 3 chunk 3      -         -         -     192 B  9-10
  16 disk    WriteStates group 3 chunk 3  -         -         -     192 B  15
  17 disk    ReadShard group 0           -  4.62 KiB         -  4.81 KiB  4
  18 h2d     FetchShard group 0          -  9.25 KiB         -  14.1 KiB  17
  19 comm    Gather group 0              -         -         -  14.1 KiB  18
  20 disk    ReadShard group 1           -     768 B         -  14.8 KiB  8
  21 h2d     FetchShard group 1          -  1.50 KiB         -  16.3 KiB  20
  22 comm    Gather group 1              -         -         -  16.3 KiB  21
  23 disk    ReadShard group 2           -  9.62 KiB         -  25.9 KiB  12
  24 h2d     FetchShard group 2          -  19.2 KiB         -  45.2 KiB  23
  25 comm    Gather group 2              -         -         -  45.2 KiB  24
  26 compute Forward unit 0              0  1.12 KiB  5.38 KiB  40.9 KiB  19 22
  27 compute Release group 0             -         -  9.25 KiB  40.9 KiB
  28 compute Release group 1             -         -  1.50 KiB  31.7 KiB
  29 host    Update group 4 chunk 4      -         -         -  30.2 KiB  13-14
  30 disk    WriteStates group 4 chunk 4  -         -         -  30.2 KiB  29
  31 disk    ReadShard group 3           -  9.62 KiB         -  39.8 KiB  16
  32 h2d     FetchShard group 3          -  19.2 KiB         -  59.1 KiB  31
  33 comm    Gather group 3              -         -         -  59.1 KiB  32
  34 compute Forward unit 1              0  1.12 KiB  9.62 KiB  53.9 KiB  25
  35 d2h     SaveInput unit 1            0  1.12 KiB         -  51.7 KiB
  36 disk    WriteInput unit 1           0         -         -  51.7 KiB  35
  37 compute Release group 2             -         -  19.2 KiB  51.7 KiB
  38 disk    ReadShard group 4           -  4.62 KiB         -  37.1 KiB  30
  39 h2d     FetchShard group 4          -  9.25 KiB         -  46.3 KiB  38
  40 comm    Gather group 4              -         -         -  46.3 KiB  39
  41 compute Forward unit 2              0  1.12 KiB  9.62 KiB  41.2 KiB  33
  42 compute LossHead unit 3             0  14.9 KiB  12.5 KiB  48.1 KiB  36 40
  43 compute Release group 4             -         -  9.25 KiB  40.2 KiB
  44 disk    ReadShard group 2           -  9.62 KiB         -  40.6 KiB
  45 h2d     FetchShard group 2          -  19.2 KiB         -  59.8 KiB  44
  46 comm    Gather group 2              -         -         -  59.8 KiB  45
  47 disk    ReadInput unit 1            0  1.12 KiB         -  60.9 KiB
  48 h2d     FetchInput unit 1           0  1.12 KiB         -  62.1 KiB  47
  49 compute Backward unit 2 again       0  20.4 KiB  2.25 KiB  98.2 KiB
  50 comm    ReduceGrads bucket 0        0  9.75 KiB         -  89.9 KiB
  51 d2h     StoreGrads bucket 0         0  9.75 KiB         -  99.7 KiB  50
  52 disk    WriteBucket bucket 0        0         -         -  99.7 KiB  51
  53 compute Release group 3             -         -  19.2 KiB  99.7 KiB
  54 disk    ReadAhead group 0 chunk 0   -         -         -  80.4 KiB  4 30
  55 compute Backward unit 1 again       0  20.4 KiB  13.0 KiB   106 KiB  46 48
  56 comm    ReduceGrads bucket 1        0  9.75 KiB         -  97.6 KiB
  57 d2h     StoreGrads bucket 1         0  9.75 KiB         -   107 KiB  56
  58 disk    WriteBucket bucket 1        0         -         -   107 KiB  57
  59 compute Release group 2             -         -  19.2 KiB   107 KiB
  60 disk    ReadAhead group 1 chunk 1   -         -         -  88.1 KiB  8 16
  61 compute Backward unit 0 again       0  10.8 KiB  10.6 KiB  90.9 KiB  52
  62 comm    ReduceGrads bucket 2        0  9.75 KiB         -  98.0 KiB
  63 d2h     StoreGrads bucket 2         0  9.75 KiB         -   108 KiB  62
  64 disk    WriteBucket bucket 2        0         -         -   108 KiB  63
  65 disk    ReadGrads group 0 chunk 0   -         -         -   108 KiB  29 64
  66 host    SumSquares group 0 chunk 0  -         -         -   108 KiB  65
  67 disk    ReadGrads group 1 chunk 1   -         -         -   108 KiB  15 64
  68 host    SumSquares group 1 chunk 1  -         -         -   108 KiB  67
  69 disk    ReadGrads group 2 chunk 2   -         -         -   108 KiB  58 64 66
  70 host    SumSquares group 2 chunk 2  -         -         -   108 KiB  69
  71 disk    ReadGrads group 3 chunk 3   -         -         -   108 KiB  52 58 68
  72 host    SumSquares group 3 chunk 3  -         -         -   108 KiB  71
  73 disk    ReadGrads group 4 chunk 4   -         -         -   108 KiB  52 70
  74 host    SumSquares group 4 chunk 4  -         -         -   108 KiB  73
  75 compute NormAndScale                -         -   108 KiB         -  52 58 64 66 68 70 72 74
)");
}

TEST(ProgramText, PictureOfASmallNvmeStep) {
  EXPECT_EQ(draw(write_train_step(small_nvme_shape()), {}),
            R"(G gather a group's parameters, F forward, L loss head, B backward
R reduce-scatter a bucket of gradients, N norm, U update, Q sum of squares
between tiers: s off the device, f to it, r and w at the disk
micro-batch 0
  compute                                                                   F0                F1
  comm                                                 G0       G1       G2 --             G3 --
  host          U0       U1       U2       U3                               -- U4             --
  h2d                                               f0       f1       f2    --          f3    --
  disk    r0 r1    w0 r2    w1 r3    w2 r4    w3 r0       r1       r2       --    w4 r3       --
  compute                F2 L                B2             B1             B0
  comm                G4 --         G2       -- R0          -- R1          -- R2
  host                   -- -                --             --             --             Q0
  d2h     s1             -- -                --    s0       --    s1       --    s2
  h2d              f4    --      f2       f1 --
  disk       w1 r4       --   r2       r1    --       w0 r0 --       w1 r1 --       w2 r0    r1
  host    Q1    Q2    Q3    Q4
  disk       r2    r3    r4
update
  compute N
)");
}

TEST(ProgramText, PictureOfTheUpdatesAlone) {
  EXPECT_EQ(draw(write_update_step(small_nvme_shape()), {}), R"(U update
between tiers: s off the device, f to it, r and w at the disk
start
  host          U0       U1       U2       U3    U4
  disk    r0 r1    w0 r2    w1 r3    w2 r4    w3    w4
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

// A stage in the middle: turns that are the same are drawn once.
TEST(ProgramText, PictureOfAPipelineStage) {
  const PipelineRun run{PipelineSchedule::k1f1b, 3, 1, 5};
  EXPECT_EQ(
      draw(write_stages(make_stages({.stage = 2, .blocks = 5}, run))[1], {}),
      R"(G gather a group's parameters, F forward, B backward, R reduce-scatter a bucket of gradients
N norm, U update
between stages: > sent, < received; a activation, g its gradient
from the forward of micro-batch 0
  compute             F0 F1       F0 F1       B1    B0
  comm    G0 G1       --                         R0 --    R1 R2
  pipe          <a <a -- -- >a <g -- -- >a <a --    -- >g       <g
from the forward of micro-batch 2, and the same to from the forward of micro-batch 3
  compute F0 F1       B1    B0
  comm    -- --       -- R0 --    R1 R2
  pipe    -- -- >a <a --    -- >g       <g
from the forward of micro-batch 4
  compute F0 F1       B1    B0          B1    B0
  comm    -- --       -- R0 --    R1 R2 -- R3 --    R4 R5
  pipe    -- -- >a <g --    -- >g       --    -- >g
update
  compute N U
)");
}

TEST(ProgramText, ListOfASplitBackward) {
  const PipelineRun run{PipelineSchedule::kZeroBubble, 2, 1, 1};
  ShapeChoice choice{.stage = 1, .bucket_bytes = 1 << 30, .tied = true, .blocks = 1};
  EXPECT_EQ(list(write_stages(make_stages(choice, run))[1]),
            R"(   # lane    operation                  mb      live      dead      held  waits for
   0 comm    Gather group 0              -         -         -         -
   1 comm    Gather group 1              -         -         -         -
   2 comm    Gather group 2              -         -         -         -
   3 pipe    ReceiveActivation unit 0    0  1.12 KiB         -  1.12 KiB
   4 compute Forward unit 0              0  11.2 KiB         -  14.6 KiB  0 3
   5 compute LoadBatch                   0     192 B         -  12.6 KiB
   6 compute LossHead unit 1             0  5.67 KiB  5.86 KiB  20.5 KiB  1-2
   7 comm    ReduceGrads bucket 0        0         -         -  12.4 KiB
   8 compute Backward unit 0 input       0  6.31 KiB  12.4 KiB  19.1 KiB
   9 pipe    SendGradient unit 0         0         -         -  6.31 KiB
  10 compute BackwardWeights unit 0      0         -  5.19 KiB  7.44 KiB
  11 comm    ReduceGrads bucket 1        0         -         -  1.12 KiB
  12 compute AddReplicas group 2         -         -         -  1.12 KiB  7
  13 compute NormAndScale                -         -  1.12 KiB         -  7 9 11-12
  14 compute Update group 0              -         -         -         -  13
  15 compute Update group 1              -         -         -         -  13
  16 compute Update group 2              -         -         -         -  13
)");
}

}  // namespace
}  // namespace sluice
