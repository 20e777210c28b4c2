// Runs on tensor-parallel ranks and pipeline stages, as processes: the curve of one rank, a
// checkpoint that any mesh goes on from, and what is refused before a rank starts.
#include <gtest/gtest.h>

#include "tests/cli/program.hpp"

namespace sluice::testing {
namespace {

const std::string kShort =
    " --set model.layers=3 --set train.steps=8 --set train.micro_batch=2"
    " --set train.global_batch=8 --set zero.stage=1 --set train.clip=1.0";

class MeshRuns : public ::testing::Test {
 protected:
  MeshRuns() { write_tiny(scratch_); }

  Finished train(const std::string& out, const std::string& more) {
    return run_program(scratch_, "train tiny.yaml --set output.dir=" + out + kShort + more);
  }

  nlohmann::json plan_of(const std::string& run) {
    return nlohmann::json::parse(scratch_.read(run + "/plan.json"));
  }

  void expect_same_curve(const std::string& run, const std::string& oracle) {
    const auto mine = scratch_.metrics(run);
    const auto whole = scratch_.metrics(oracle);
    ASSERT_EQ(mine.size(), whole.size()) << run;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      EXPECT_NEAR(mine[i]["loss"].get<double>() / whole[i]["loss"].get<double>(), 1, 2e-5)
          << run << ", step " << i + 1;
    }
    EXPECT_NEAR(mine.back()["eval_loss"].get<double>() / whole.back()["eval_loss"].get<double>(), 1,
                2e-5)
        << run;
    const double planned = plan_of(run)["tiers"]["device"]["peak"];
    EXPECT_LE(mine[5]["memory"]["device_peak"].get<double>(), 1.01 * planned) << run;
  }

  Scratch scratch_;
};

TEST_F(MeshRuns, TrainAsOneRankDoes) {
  ASSERT_EQ(train("one", " --nproc 1").exit_code, 0);
  const std::pair<const char*, const char*> meshes[] = {
      {"tensor", " --nproc 2 --set parallel.tensor=2 --set parallel.sequence=true"},
      {"pipeline", " --nproc 2 --set parallel.pipeline=2 --set zero.stage=3"},
      {"gloo",
       " --nproc 2 --set parallel.pipeline=2 --set parallel.schedule=zero_bubble"
       " --set launch.backend=gloo"},
      {"both",
       " --nproc 4 --set parallel.pipeline=2 --set parallel.tensor=2 --set zero.stage=2"
       " --set offload.optimizer=host"}};
  for (const auto& [name, keys] : meshes) {
    const Finished run = train(name, keys);
    ASSERT_EQ(run.exit_code, 0) << run.output;
    expect_same_curve(name, "one");
  }
  EXPECT_FALSE(plan_of("tensor").contains("stages"));
  const nlohmann::json plan = plan_of("pipeline");
  const nlohmann::json& stages = plan["stages"];
  ASSERT_EQ(stages.size(), 2U) << plan;
  const auto first = stages[0]["device"].get<std::int64_t>();
  const auto last = stages[1]["device"].get<std::int64_t>();
  EXPECT_NE(first, last);
  EXPECT_EQ(std::max(first, last), plan["tiers"]["device"]["peak"].get<std::int64_t>());
}

// Rank 0's peak, which metrics.jsonl has, is not the largest of this pipeline.
TEST_F(MeshRuns, TheLogNamesTheFullestRank) {
  const Finished run = train("run",
                             " --nproc 2 --set parallel.pipeline=2 --set train.micro_batch=8 --set "
                             "model.layers=2 --set train.steps=3");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const nlohmann::json stages = plan_of("run")["stages"];
  ASSERT_GT(stages[1]["device"].get<double>(), 1.01 * stages[0]["device"].get<double>());
  EXPECT_NE(run.output.find("device peak of rank 1, the fullest of 2 ranks: planned "),
            std::string::npos)
      << run.output;
}

TEST_F(MeshRuns, AnyMeshGoesOnFromAnyOthersCheckpoint) {
  ASSERT_EQ(train("one", " --nproc 1").exit_code, 0);
  const std::string saved = " --set checkpoint.every=4 --resume auto";
  const std::string half = saved + " --set schedule.decay_steps=8 --set train.steps=4";
  ASSERT_EQ(
      train("run", half + " --nproc 4 --set parallel.tensor=2 --set parallel.pipeline=2").exit_code,
      0);
  const Finished resumed = train("run", saved + " --nproc 2 --set parallel.tensor=2");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_NE(resumed.output.find("parallel.pipeline: 2 -> 1"), std::string::npos) << resumed.output;
  expect_same_curve("run", "one");
  // Whoever uses the weights need not be as many as have trained them.
  for (const char* const ranks : {"1", "2"}) {
    const Finished eval = run_program(
        scratch_,
        std::string("eval run/config.yaml --checkpoint run/checkpoints --nproc ") + ranks);
    EXPECT_EQ(eval.exit_code, 0) << eval.output;
    const Finished text = run_program(
        scratch_, std::string("generate --checkpoint run/checkpoints --prompt line --max-tokens 4"
                              " --nproc ") +
                      ranks);
    EXPECT_EQ(text.exit_code, 0) << text.output;
  }
}

TEST_F(MeshRuns, WhatDoesNotDivideIsRefusedBeforeARankStarts) {
  const Finished heads = train("run", " --nproc 3 --set parallel.tensor=3");
  EXPECT_EQ(heads.exit_code, 2) << heads.output;
  EXPECT_NE(heads.output.find("model.heads must be a multiple of tensor: 4 % 3 = 1"),
            std::string::npos)
      << heads.output;
  const Finished world = train("run", " --nproc 3 --set parallel.pipeline=2");
  EXPECT_EQ(world.exit_code, 2) << world.output;
  EXPECT_NE(world.output.find("world must be a multiple of tensor x pipeline: 3 % (1 x 2) = 1"),
            std::string::npos)
      << world.output;
  const Finished memory =
      train("run", " --nproc 2 --set parallel.pipeline=2 --set memory.device=300KiB");
  EXPECT_EQ(memory.exit_code, 3) << memory.output;
  EXPECT_NE(memory.output.find("memory.device: a step needs"), std::string::npos) << memory.output;
}

// Stages whose programs do not fit together would wait for each other for ever: no rank is started.
TEST_F(MeshRuns, StagesThatDoNotFitTogetherAreRefused) {
  const std::string mesh = " --set parallel.pipeline=2 --set launch.nproc=2 --set output.dir=no";
  for (const std::string command : {"train tiny.yaml", "train tiny.yaml --dry-run",
                                    "plan tiny.yaml --world 2 --profile h100-sxm"}) {
    const Finished sound =
        run_program(scratch_, command + kShort + mesh + " --set output.dir=sound");
    EXPECT_EQ(sound.exit_code, 0) << sound.output;
    const Finished run =
        run_program(scratch_, command + kShort + mesh, {{"SLUICE_FAILPOINTS", "plan.stage.1:nan"}});
    EXPECT_EQ(run.exit_code, 5) << run.output;
    for (const char* part : {"activations from stage 0 to stage 1", "of stage 1 receives"}) {
      EXPECT_NE(run.output.find(part), std::string::npos) << run.output;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("no")));
}

}  // namespace
}  // namespace sluice::testing
