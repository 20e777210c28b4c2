// Resuming with another train.freeze: the moments that the checkpoint holds go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "tests/cli/resume_runs.hpp"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kRate = 3e-3;
constexpr const char* kNoMoments = "the checkpoint holds no moments of the trained parameters";

class FreezeResume : public Resume {
 protected:
  // Trains up to step `steps` without clipping, at the constant kRate.
  Finished train_to(int steps, const std::string& out, const std::string& freeze,
                    const std::string& more = "") {
    return train(out, "--set train.steps=" + std::to_string(steps) + " --set 'train.freeze=" +
                          freeze + "' --set train.clip=0 --set schedule.type=constant " + more);
  }
  Checkpoint newest(const std::string& run) const {
    return open_checkpoint(local_file_system(), scratch_.path(run));
  }
};

std::vector<float> values_of(Checkpoint& checkpoint, const StateRange& param, StateKind kind) {
  if (!checkpoint.has(param.param, kind)) return {};
  const StateRange whole = whole_range(param.param, kind, TensorDType::kF32, param.shape);
  std::vector<float> values(static_cast<std::size_t>(whole.elems()));
  checkpoint.read_range(whole, std::as_writable_bytes(std::span(values)));
  return values;
}

TEST_F(FreezeResume, AParameterThatIsThawedLeavesTheUpdatesOfTheOthers) {
  const std::string from = "--resume base";
  ASSERT_EQ(train_to(6, "base", "[h.0,ln_f.bias]").exit_code, 0);
  const Finished same = train_to(7, "same", "[ln_f.bias,h.0]", from);
  ASSERT_EQ(same.exit_code, 0) << same.output;
  EXPECT_THAT(same.output, Not(HasSubstr("changed:")));
  EXPECT_THAT(same.output, Not(HasSubstr("start from zero")));
  const Finished thawed = train_to(7, "thawed", "[h.0]", from);
  ASSERT_EQ(thawed.exit_code, 0) << thawed.output;
  EXPECT_THAT(thawed.output, HasSubstr("changed: train.freeze: [h.0, ln_f.bias] -> [h.0]"));
  EXPECT_THAT(thawed.output, HasSubstr("frozen in the checkpoint and trained now: 1 parameter; "
                                       "their moments start from zero, those of the other 15 go "
                                       "on"));
  Checkpoint before = newest("base");
  Checkpoint control = newest("same");
  Checkpoint after = newest("thawed");
  for (const StateRange& param : control.parameters()) {
    SCOPED_TRACE(param.param);
    if (param.param == "ln_f.bias") continue;
    for (const StateKind kind : kStateKinds) {
      EXPECT_EQ(values_of(after, param, kind), values_of(control, param, kind));
    }
  }
  // Adam's first update with the bias correction of update 7.
  const double update =
      kRate * (0.1 / (1 - std::pow(0.9, 7))) / std::sqrt(0.05 / (1 - std::pow(0.95, 7)));
  for (const StateRange& param : after.parameters()) {
    if (param.param != "ln_f.bias") continue;
    const std::vector<float> old = values_of(before, param, StateKind::kMaster);
    const std::vector<float> now = values_of(after, param, StateKind::kMaster);
    ASSERT_FALSE(now.empty());
    for (std::size_t i = 0; i < now.size(); ++i) {
      EXPECT_NEAR(std::abs(now[i] - old[i]), update, 0.01 * update) << i;
    }
  }
}

TEST_F(FreezeResume, LargeFirstUpdatesOfAThawedParameterAreSaid) {
  constexpr const char* kLarge = "first updates are up to about 7 times those of a new run";
  ASSERT_EQ(train_to(6, "base", "[h.0]").exit_code, 0);
  const std::string betas = "--resume base --set 'optimizer.betas=[0.9,";
  EXPECT_THAT(train_to(7, "long", "[]", betas + "0.999]'").output, HasSubstr(kLarge));
  EXPECT_THAT(train_to(7, "short", "[]", betas + "0.95]'").output, Not(HasSubstr("first updates")));
}

TEST_F(FreezeResume, WithoutAnyMomentsOfWhatTrainsTheCountStartsAgain) {
  ASSERT_EQ(train_to(6, "base", "[wte,wpe,h.1,ln_f]").exit_code, 0);
  const Finished others = train_to(7, "others", "[h.0]", "--resume base");
  ASSERT_EQ(others.exit_code, 0) << others.output;
  EXPECT_THAT(others.output, HasSubstr(kNoMoments));
  EXPECT_EQ(newest("others").manifest().run.more.at("before_moments"), "6");
  const Finished all = train_to(7, "all", "[]", "--resume base");
  ASSERT_EQ(all.exit_code, 0) << all.output;
  EXPECT_THAT(all.output, Not(HasSubstr(kNoMoments)));
  EXPECT_EQ(newest("all").manifest().run.more.count("before_moments"), 0U);
}

// Frozen weights have no master weights: a 16-bit run keeps them rounded.
TEST_F(FreezeResume, FrozenWeightsThatChangeByRoundingAreSaid) {
  const auto expect_said = [&](const Finished& run, const std::string& source) {
    ASSERT_EQ(run.exit_code, 0) << run.output;
    const std::string said = "train.freeze: the frozen weights of ";
    if (source.empty()) {
      EXPECT_THAT(run.output, Not(HasSubstr(said)));
    } else {
      EXPECT_THAT(run.output, HasSubstr(said + source + " change by rounding to bf16"));
    }
  };
  const std::string bf16 = "--set train.dtype=bf16 --set train.matmul=native ";
  ASSERT_EQ(train_to(4, "base", "[]").exit_code, 0);
  // A parameter of one rank's part alone: zero.stage is 3.
  expect_said(train_to(5, "half", "[h.1.ln_1.weight]", bf16 + "--resume base"),
              "base/checkpoints/step-00000004");
  expect_said(train_to(6, "again", "[h.1.ln_1.weight]", bf16 + "--resume half"), "");
  expect_said(train_to(5, "trained", "[]", bf16 + "--resume base"), "");
  expect_said(train_to(5, "whole", "[h.1]", "--resume base"), "");
  expect_said(train_to(2, "drawn", "[h.1]", bf16), "");
  for (const std::string dtype : {"fp32", "bf16"}) {
    const std::string folder = "hf-" + dtype;
    ASSERT_EQ(run_program(scratch_, "checkpoint export base -o " + folder + " --dtype " + dtype)
                  .exit_code,
              0);
    const std::string more = bf16 + "--set model.from=" + folder;
    expect_said(train_to(2, "of-" + dtype, "[h.1]", more),
                dtype == "bf16" ? "" : "model.from " + folder);
  }
}

// The first parameter by name was frozen.
TEST_F(FreezeResume, AnotherOptimizerIsRefusedWhicheverParametersHaveMoments) {
  ASSERT_EQ(train_to(6, "base", "[h.0]").exit_code, 0);
  const Finished other = train_to(7, "other", "[h.0]", "--resume base --set optimizer.type=lion");
  EXPECT_EQ(other.exit_code, 2) << other.output;
  EXPECT_THAT(other.output, HasSubstr("holds the moments of adamw; go on with adamw"));
}

}  // namespace
}  // namespace sluice::testing
