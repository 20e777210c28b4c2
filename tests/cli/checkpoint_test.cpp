// `sluice checkpoint` and `model.from`, as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "tests/cli/program.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string golden(const std::string& family) {
  return SLUICE_SOURCE_DIR "/tests/golden/hf/" + family;
}

TEST(CheckpointCommand, InAndOutAndVerified) {
  const Scratch scratch;
  const Finished in = run_program(scratch, "checkpoint import " + golden("mistral") + " -o ours");
  ASSERT_EQ(in.exit_code, 0) << in.output;
  EXPECT_THAT(in.output, HasSubstr("at step 0, without moments"));
  const Finished list = run_program(scratch, "checkpoint ls ours");
  ASSERT_EQ(list.exit_code, 0) << list.output;
  EXPECT_THAT(list.output, HasSubstr("step-00000000"));
  EXPECT_THAT(list.output, HasSubstr("latest"));
  const nlohmann::json as_json =
      nlohmann::json::parse(run_program(scratch, "checkpoint ls ours --json").output);
  ASSERT_EQ(as_json["checkpoints"].size(), 1U);
  EXPECT_EQ(as_json["checkpoints"][0]["step"], 0);
  EXPECT_EQ(as_json["checkpoints"][0]["complete"], true);
  for (const std::string step : {"ours/step-00000000", "ours/step-00000000/", "ours/.",
                                 "ours/step-00000000/.", "ours/step-00000000/..//"}) {
    const Finished one = run_program(scratch, "checkpoint ls " + step);
    EXPECT_EQ(one.exit_code, 0) << one.output;
    EXPECT_EQ(one.output, list.output);
  }
  const Finished verified = run_program(scratch, "checkpoint verify ours");
  EXPECT_EQ(verified.exit_code, 0) << verified.output;
  EXPECT_THAT(verified.output, HasSubstr(": sound"));
  const Finished out = run_program(
      scratch, "checkpoint export ours -o out --dtype fp16 --tokenizer " + golden("mistral"));
  ASSERT_EQ(out.exit_code, 0) << out.output;
  // Written again, the tokenizer's folder beside it.
  ASSERT_EQ(run_program(scratch, "checkpoint convert ours -o more --files 2").exit_code, 0);
  ASSERT_EQ(run_program(scratch, "checkpoint export more -o third --dtype fp16").exit_code, 0);
  EXPECT_TRUE(scratch.read("out/model.safetensors") == scratch.read("third/model.safetensors"));
  EXPECT_EQ(scratch.read("more/huggingface/config.json"),
            scratch.read("ours/huggingface/config.json"));
  // In again and out again: the same file (golden tensors are compared in hf_weights_test).
  ASSERT_EQ(run_program(scratch, "checkpoint import out -o again").exit_code, 0);
  ASSERT_EQ(run_program(scratch, "checkpoint export again -o twice --dtype fp16").exit_code, 0);
  for (const std::string name : {"model.safetensors", "config.json"}) {
    EXPECT_FALSE(scratch.read("out/" + name).empty());
    EXPECT_TRUE(scratch.read("out/" + name) == scratch.read("twice/" + name)) << name;
  }
  EXPECT_EQ(run_program(scratch, "checkpoint export ours -o out").exit_code, 2);
  const Finished other = run_program(scratch, "checkpoint export out -o fourth");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.output, HasSubstr("out is a Hugging Face folder, which an export would make"));
  EXPECT_THAT(other.output, HasSubstr("`sluice checkpoint import out -o DIR`"));
}

TEST(CheckpointCommand, AnImportNeedsAFolderOfItsOwn) {
  const Scratch scratch;
  ASSERT_EQ(run_program(scratch, "checkpoint import " + golden("llama") + " -o ours").exit_code, 0);
  const std::string before = scratch.read("ours/huggingface/config.json");
  const auto refuse = [&](const std::string& out, const std::string& message) {
    const Finished second =
        run_program(scratch, "checkpoint import " + golden("mistral") + " -o " + out);
    EXPECT_EQ(second.exit_code, 2) << second.output;
    EXPECT_THAT(second.output, HasSubstr(message));
  };
  refuse("ours", "-o ours already holds checkpoints, as step-00000000; give a folder that is new");
  refuse("ours/step-00000000", "-o ours/step-00000000 is a checkpoint");
  EXPECT_EQ(scratch.read("ours/huggingface/config.json"), before);
  EXPECT_FALSE(fs::exists(scratch.path("ours/step-00000000/huggingface")));
}

TEST(CheckpointCommand, OurOwnCheckpointsNeedNoImport) {
  const Scratch scratch;
  ASSERT_EQ(run_program(scratch, "checkpoint import " + golden("llama") + " -o run/checkpoints")
                .exit_code,
            0);
  for (const std::string from : {"run", "run/checkpoints", "run/checkpoints/step-00000000"}) {
    for (const std::string format : {"auto", "hf", "deepspeed"}) {
      const Finished again =
          run_program(scratch, "checkpoint import " + from + " -o new --format " + format);
      EXPECT_EQ(again.exit_code, 4) << again.output;
      EXPECT_THAT(again.output,
                  HasSubstr("cannot import " + from + ": it holds checkpoints of Sluice already"));
      EXPECT_THAT(again.output, HasSubstr("--resume " + from + "`"));
    }
  }
  EXPECT_FALSE(fs::exists(scratch.path("new")));
}

// Readers of run/ take checkpoints that lie in it before those in run/checkpoints.
TEST(CheckpointCommand, TheFolderOfARunIsNoOutput) {
  const Scratch scratch;
  write_tiny(scratch);
  const auto refuse = [&](const std::string& command) {
    const Finished refused = run_program(scratch, "checkpoint " + command + " -o run");
    EXPECT_EQ(refused.exit_code, 2) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr("run is the folder of a run, and what is written"));
    EXPECT_FALSE(fs::exists(scratch.path("run/huggingface")));
  };
  ASSERT_EQ(run_program(scratch, "train tiny.yaml --set train.steps=1").exit_code, 0);
  refuse("convert run");
  refuse("import " + golden("llama"));
  fs::rename(scratch.path("run/checkpoints"), scratch.path("elsewhere"));
  refuse("convert elsewhere");
}

TEST(CheckpointCommand, WhatIsNotThereIsNamed) {
  const Scratch scratch;
  fs::create_directory(scratch.path("notes"));
  const auto refuse = [&](const std::string& arguments, int code, const std::string& message) {
    const Finished refused = run_program(scratch, arguments);
    EXPECT_EQ(refused.exit_code, code) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr(message));
  };
  refuse("checkpoint import none -o ours", 4, "cannot import none: there is no such folder");
  refuse("checkpoint import notes -o ours", 4, "notes is nothing that can be imported");
  refuse("checkpoint import notes -o ours --format hf", 4, "notes has no config.json");
  scratch.write("notes/latest_checkpointed_iteration.txt", "99999999999999999999");
  refuse("checkpoint import notes -o ours", 4, "notes/latest_checkpointed_iteration.txt names no");
  refuse("checkpoint verify none", 4, "there is no folder none");
  refuse("checkpoint squeeze none", 2, "sluice checkpoint: there is no command 'squeeze'");
  refuse("squeeze", 2, "sluice: there is no command 'squeeze'");
  refuse("checkpoint ls", 2, "folder is required");
  EXPECT_FALSE(fs::exists(scratch.path("ours")));
}

TEST(CheckpointCommand, DamageIsNamed) {
  const Scratch scratch;
  ASSERT_EQ(run_program(scratch, "checkpoint import " + golden("llama") + " -o ours").exit_code, 0);
  const std::string file = scratch.path("ours/step-00000000/rank-00000.safetensors");
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekp(-100, std::ios::end);
  stream.put('x');
  stream.put('y');
  stream.close();
  const Finished verified = run_program(scratch, "checkpoint verify ours/step-00000000");
  EXPECT_EQ(verified.exit_code, 4);
  EXPECT_THAT(verified.output, HasSubstr("rank-00000.safetensors"));
  EXPECT_THAT(verified.output, HasSubstr(": 1 defect\n"));
  const nlohmann::json as_json =
      nlohmann::json::parse(run_program(scratch, "checkpoint verify ours --json").output);
  EXPECT_EQ(as_json["checkpoints"][0]["sound"], false);
  EXPECT_EQ(run_program(scratch, "checkpoint export ours -o out").exit_code, 4);
  EXPECT_EQ(run_program(scratch, "checkpoint ls nowhere").exit_code, 4);
  fs::create_directories(scratch.path("empty"));
  EXPECT_EQ(run_program(scratch, "checkpoint verify empty").exit_code, 4);
}

// The untied llama over two ranks and one, every stage: one model, so one loss.
TEST(ModelFrom, TrainsFromTheFoldersWeights) {
  const Scratch scratch;
  write_tiny(scratch);
  const auto train = [&](const std::string& more) {
    return run_program(scratch, "train from.yaml " + more);
  };
  scratch.write("from.yaml",
                "model: {from: " + golden("llama") +
                    ", vocab: 257, seq: 16}\n"
                    "data: {text: [text.txt], tokenizer: bytes}\n"
                    "train: {steps: 2, micro_batch: 1, global_batch: 2, eval_steps: 0}\n"
                    "optimizer: {lr: 1e-4}\n"
                    "launch: {timeout: 20s}\n");
  std::vector<double> losses;
  for (const std::string run : {"0 --nproc 1", "1 --nproc 2", "3 --nproc 2"}) {
    const std::string name = "run" + std::to_string(losses.size());
    const Finished done = train("--set output.dir=" + name + " --set zero.stage=" + run);
    ASSERT_EQ(done.exit_code, 0) << done.output;
    EXPECT_THAT(done.output, HasSubstr("weights from "));
    EXPECT_THAT(done.output, HasSubstr("rows beyond the file's 37 are drawn"));
    losses.push_back(scratch.metrics(name)[1]["loss"]);
  }
  EXPECT_EQ(losses[1], losses[2]);
  EXPECT_NEAR(losses[0], losses[1], 1e-5);
  // The resolved configuration says whose values these are, and is accepted again.
  EXPECT_THAT(scratch.read("run0/config.yaml"), HasSubstr("hidden: 16"));
  EXPECT_THAT(scratch.read("run0/config.yaml"), HasSubstr("hf/llama/config.json"));
  EXPECT_EQ(run_program(scratch, "train run0/config.yaml --set output.dir=again").exit_code, 0);
  EXPECT_EQ(scratch.metrics("again")[1]["loss"], losses[0]);
}

// The checkpoint holds all that the folder's weights gave.
TEST(ModelFrom, AResumeNeedsNoneOfTheFoldersWeights) {
  const Scratch scratch;
  write_tiny(scratch);
  fs::copy(golden("llama"), scratch.path("hf"));
  scratch.write("from.yaml",
                "model: {from: hf, vocab: 257, seq: 16}\n"
                "data: {text: [text.txt], tokenizer: bytes}\n"
                "train: {steps: 4, micro_batch: 1, eval_steps: 0}\n"
                "schedule: {type: constant}\n"
                "launch: {nproc: 2, timeout: 20s}\n");
  const auto train = [&](const std::string& more) {
    return run_program(scratch, "train from.yaml --set checkpoint.every=2 --resume auto " + more);
  };
  const Finished whole = train("--set output.dir=whole");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_THAT(whole.output, HasSubstr("weights from hf"));
  ASSERT_EQ(train("--set output.dir=run --set train.steps=2").exit_code, 0);
  for (const auto& entry : fs::directory_iterator(scratch.path("hf"))) {
    if (entry.path().filename() != "config.json") fs::remove(entry.path());
  }
  const Finished resumed = train("--set output.dir=run");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, Not(HasSubstr("weights from")));
  EXPECT_EQ(scratch.curve("run"), scratch.curve("whole"));
  // Without the folder too, as the refusal says.
  fs::remove_all(scratch.path("hf"));
  const Finished refused = train("--set output.dir=run --set train.steps=6");
  EXPECT_EQ(refused.exit_code, 4) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("sluice train run/config.yaml --resume auto --set "
                                        "'model.from=\"\"' --set data.tokenizer=FOLDER"));
  const Finished without = run_program(
      scratch, "train run/config.yaml --resume auto --set 'model.from=\"\"' --set train.steps=6");
  EXPECT_EQ(without.exit_code, 0) << without.output;
  EXPECT_THAT(without.output, HasSubstr("going on with step 5"));
}

TEST(ModelFrom, WhatContradictsTheFolderIsRefused) {
  const Scratch scratch;
  write_tiny(scratch);
  scratch.write("from.yaml", "model: {from: " + golden("gpt2") +
                                 ", hidden: 64}\n"
                                 "data: {text: [text.txt]}\n");
  for (const std::string command : {"train", "plan"}) {
    const Finished refused = run_program(scratch, command + " from.yaml");
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.output, HasSubstr("from.yaml:1:"));
    EXPECT_THAT(refused.output, HasSubstr("model.hidden: 64 is not the 16 of " + golden("gpt2")));
  }
  scratch.write("from.yaml", "model: {from: " + golden("gpt2") + "}\ndata: {text: [text.txt]}\n");
  const Finished tokenizer = run_program(scratch, "train from.yaml");
  EXPECT_EQ(tokenizer.exit_code, 2);
  EXPECT_THAT(tokenizer.output, HasSubstr("or give data.tokenizer"));
  EXPECT_EQ(run_program(scratch, "train tiny.yaml --set model.from=nowhere").exit_code, 4);
}

}  // namespace
}  // namespace sluice::testing
