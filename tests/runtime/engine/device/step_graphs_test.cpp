#include "runtime/engine/ops/step_graphs.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"

namespace sluice {
namespace {

// Writes what is asked of it: ( ) the pool, [ ] a recording, digits the launches of graphs.
class LoggedGraphs final : public DeviceGraphs {
 public:
  void begin_pool() override { log += '('; }
  void end_pool() noexcept override { log += ')'; }
  void begin_recording() override { log += '['; }
  std::unique_ptr<DeviceGraph> end_recording() override {
    log += ']';
    return std::make_unique<Logged>(log, made_++);
  }
  void abandon_recording() noexcept override { log += '!'; }

  std::string log;

 private:
  class Logged final : public DeviceGraph {
   public:
    Logged(std::string& log, int number) : log_(log), number_(number) {}
    void launch() override { log_ += std::to_string(number_); }

   private:
    std::string& log_;
    const int number_;
  };
  int made_ = 0;
};

class StepGraphsTest : public ::testing::Test {
 protected:
  StepGraphsTest() {
    for (const OpKind kind : {OpKind::kLoadBatch, OpKind::kForward, OpKind::kLossHead,
                              OpKind::kReduceGrads, OpKind::kBackward, OpKind::kNormAndScale}) {
      program_.ops.push_back({.kind = kind});
    }
  }

  // The log of one program; bodies write F, L and B.
  std::string run(RunMode mode, double loss_scale = 1) {
    run_.begin_program(program_, mode, 1, {});
    run_.input.loss_scale = loss_scale;
    graphs_.log.clear();
    steps_.begin_program();
    for (const Op& op : program_.ops) {
      const char name = op.kind == OpKind::kForward    ? 'F'
                        : op.kind == OpKind::kLossHead ? 'L'
                        : op.kind == OpKind::kBackward ? 'B'
                                                       : ' ';
      if (name != ' ') steps_.run(op, [&] { graphs_.log += name; });
    }
    return graphs_.log;
  }

  Program program_;
  StepRun run_;
  LoggedGraphs graphs_;
  bool outgrown_ = false;
  StepGraphs steps_{run_, &graphs_, [this] { return outgrown_; }};
};

constexpr char kEager[] = "(F)(L)(B)";

TEST_F(StepGraphsTest, TheSecondStepIsRecordedAndLaterOnesAreLaunched) {
  EXPECT_EQ(run(RunMode::kTrain), kEager);
  EXPECT_EQ(run(RunMode::kTrain), "([FL])0([B])1");
  EXPECT_EQ(run(RunMode::kTrain), "01");
  EXPECT_EQ(run(RunMode::kTrain), "01");
}

TEST_F(StepGraphsTest, OtherProgramsTakeFromThePoolSoTheNextStepIsRecordedAgain) {
  for (int step = 0; step < 3; ++step) run(RunMode::kTrain);
  EXPECT_EQ(run(RunMode::kEvaluate), kEager);
  EXPECT_EQ(run(RunMode::kTrain), "([FL])2([B])3");
  EXPECT_EQ(run(RunMode::kDiagnose), kEager);
  EXPECT_EQ(run(RunMode::kTrain), "([FL])4([B])5");
  EXPECT_EQ(run(RunMode::kTrain), "45");
}

// A deferred update before a save.
TEST_F(StepGraphsTest, ProgramsOfUpdatesTakeNothingFromThePool) {
  for (int step = 0; step < 3; ++step) run(RunMode::kTrain);
  Program update;
  update.ops.push_back({.kind = OpKind::kRelease});
  run_.begin_program(update, RunMode::kUpdate, 1, {});
  graphs_.log.clear();
  steps_.begin_program();
  steps_.run(update.ops[0], [this] { graphs_.log += 'R'; });
  EXPECT_EQ(graphs_.log, "R");
  EXPECT_EQ(run(RunMode::kTrain), "01");
}

TEST_F(StepGraphsTest, LogitsAreNotOfThePool) {
  EXPECT_EQ(run(RunMode::kLogits), "(F)L(B)");
  EXPECT_EQ(run(RunMode::kDecode), "(F)L(B)");
}

TEST_F(StepGraphsTest, AnotherLossFactorNeedsNoOtherRecording) {
  EXPECT_EQ(run(RunMode::kTrain, 1024), kEager);
  EXPECT_EQ(run(RunMode::kTrain, 512), "([FL])0([B])1");
  EXPECT_EQ(run(RunMode::kTrain, 256), "01");
}

TEST_F(StepGraphsTest, AStepWithoutRoomForItsDocumentsIsRecordedAgain) {
  for (int step = 0; step < 3; ++step) run(RunMode::kTrain);
  outgrown_ = true;
  EXPECT_EQ(run(RunMode::kTrain), "([FL])2([B])3");
  outgrown_ = false;
  EXPECT_EQ(run(RunMode::kTrain), "23");
}

TEST_F(StepGraphsTest, AFailureEndsTheRecordingAndThePool) {
  run(RunMode::kTrain);
  run_.begin_program(program_, RunMode::kTrain, 2, {});
  graphs_.log.clear();
  steps_.begin_program();
  EXPECT_THROW(steps_.run(program_.ops[1], [] { throw Error("no memory"); }), Error);
  EXPECT_EQ(graphs_.log, "([!)");
}

TEST_F(StepGraphsTest, WithoutGraphsBodiesRun) {
  StepGraphs none(run_, nullptr, {});
  int ran = 0;
  none.run(program_.ops[1], [&] { ++ran; });
  EXPECT_EQ(ran, 1);
}

}  // namespace
}  // namespace sluice
