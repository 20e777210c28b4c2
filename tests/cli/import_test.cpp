// `sluice checkpoint import` of DeepSpeed's and Megatron's checkpoints, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <span>

#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "tests/cli/program.hpp"
#include "tests/runtime/checkpoint/torch_writer.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string golden(const std::string& name) {
  return SLUICE_SOURCE_DIR "/tests/golden/torch/" + name;
}

void write_file(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

// A checkpoint of ours (a gpt2) as DeepSpeed's converter would leave it.
void write_universal(const std::string& step, const fs::path& out) {
  Checkpoint checkpoint = open_checkpoint(local_file_system(), step);
  const RunState& run = checkpoint.manifest().run;
  for (const StateRange& param : checkpoint.parameters()) {
    const fs::path folder = out / "zero" / ("transformer." + param.param);
    for (const auto& [kind, name] : {std::pair{StateKind::kMaster, "fp32.pt"},
                                     {StateKind::kMoment1, "exp_avg.pt"},
                                     {StateKind::kMoment2, "exp_avg_sq.pt"}}) {
      const StateRange whole = whole_range(param.param, kind, TensorDType::kF32, param.shape);
      std::vector<float> values(static_cast<std::size_t>(whole.elems()));
      checkpoint.read_range(whole, std::as_writable_bytes(std::span(values)));
      WrittenTensor tensor{param.shape, {}, values};
      if (param.param.starts_with("h.") && param.shape.size() == 2) {  // Conv1D: a view of ours
        tensor.shape = {param.shape[1], param.shape[0]};
        tensor.strides = {1, param.shape[1]};
      }
      write_file(folder / name, torch_state(tensor));
    }
    write_file(folder / "step.pt", torch_file(pickled_int(static_cast<std::int32_t>(run.updates))));
  }
  const auto number = [](const char* key, std::int64_t value) {
    return pickled_text(key) + pickled_int(static_cast<std::int32_t>(value)) + "s";
  };
  write_file(out / "mp_rank_00_model_states.pt", torch_file("}" + number("global_steps", run.step) +
                                                            number("global_samples", run.samples)));
}

TEST(ImportCommand, TrainingGoesOnAsFromOurOwnCheckpoint) {
  const Scratch scratch;
  write_tiny(scratch);
  const std::string model =
      " --set model.hidden=32 --set model.seq=32 --set train.steps=6 --set train.eval_steps=0";
  const Finished whole =
      run_program(scratch,
                  "train tiny.yaml --set output.dir=whole --set checkpoint.every=3"
                  " --set checkpoint.keep=0" +
                      model);
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  write_universal(scratch.path("whole/checkpoints/step-00000003"),
                  scratch.path("theirs/global_step3_universal"));
  scratch.write("theirs/latest_universal", "global_step3_universal\n");
  const Finished in =
      run_program(scratch, "checkpoint import theirs -o ours --config tiny.yaml" + model);
  ASSERT_EQ(in.exit_code, 0) << in.output;
  EXPECT_THAT(in.output, HasSubstr("parameters of DeepSpeed's at step 3, with both moments"));
  EXPECT_EQ(run_program(scratch, "checkpoint verify ours").exit_code, 0);
  const Finished on =
      run_program(scratch, "train tiny.yaml --set output.dir=on --resume ours" + model);
  ASSERT_EQ(on.exit_code, 0) << on.output;
  EXPECT_THAT(on.output, HasSubstr("going on with step 4"));
  EXPECT_EQ(scratch.curve("on", 3), scratch.curve("whole", 3));
  EXPECT_FALSE(scratch.curve("on", 3).empty());
}

std::vector<float> all_masters(const std::string& path) {
  Checkpoint checkpoint = open_checkpoint(local_file_system(), path);
  std::vector<float> all;
  for (const StateRange& param : checkpoint.parameters()) {
    const StateRange whole =
        whole_range(param.param, StateKind::kMaster, TensorDType::kF32, param.shape);
    const std::size_t before = all.size();
    all.resize(before + static_cast<std::size_t>(whole.elems()));
    checkpoint.read_range(whole, std::as_writable_bytes(std::span(all).subspan(before)));
  }
  return all;
}

// Moments of zero with the count of a long run would make the first steps three times as long and
// more: AdamW's are at most the learning rate.
TEST(WeightsAlone, AdamCountsFromWhereItsMomentsBegin) {
  const Scratch scratch;
  write_tiny(scratch);
  const std::string train =
      "train tiny.yaml --nproc 1 --set model.hidden=32 --set model.seq=32 --set train.eval_steps=0"
      " --set optimizer.lr=1e-3 --set optimizer.betas=[0.9,0.999] --set optimizer.weight_decay=0"
      " --set schedule.type=constant --set schedule.warmup_steps=0 --set checkpoint.keep=0 ";
  const auto steps = [&](int count, const std::string& dir) {
    const Finished done = run_program(scratch, train + "--resume auto --set checkpoint.dir=" + dir +
                                                   " --set output.dir=run-" + dir +
                                                   " --set train.steps=" + std::to_string(count));
    ASSERT_EQ(done.exit_code, 0) << done.output;
  };
  ASSERT_NO_FATAL_FAILURE(steps(6, "whole"));
  for (const std::string to : {"bare", "once"}) {
    const Finished converted =
        run_program(scratch, "checkpoint convert whole -o " + to + " --weights-only");
    ASSERT_EQ(converted.exit_code, 0) << converted.output;
  }
  ASSERT_NO_FATAL_FAILURE(steps(7, "bare"));
  const std::vector<float> before = all_masters(scratch.path("bare/step-00000006"));
  const std::vector<float> after = all_masters(scratch.path("bare/step-00000007"));
  ASSERT_EQ(before.size(), after.size());
  float longest = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    longest = std::max(longest, std::abs(after[i] - before[i]));
  }
  EXPECT_GT(longest, 0.9e-3F);
  EXPECT_LT(longest, 1.01e-3F);
  // The count is a state like any other.
  ASSERT_NO_FATAL_FAILURE(steps(9, "bare"));
  ASSERT_NO_FATAL_FAILURE(steps(9, "once"));
  EXPECT_EQ(all_masters(scratch.path("bare/step-00000009")),
            all_masters(scratch.path("once/step-00000009")));
}

TEST(ImportCommand, SaysWhatIsMissing) {
  const Scratch scratch;
  const auto refuse = [&](const std::string& arguments, int code, const std::string& message) {
    const Finished refused = run_program(scratch, "checkpoint import " + arguments + " -o ours");
    EXPECT_EQ(refused.exit_code, code) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr(message));
    EXPECT_FALSE(fs::exists(scratch.path("ours")));
  };
  refuse(golden("deepspeed"), 2, "does not say what model it is of; give --config RUN.yaml");
  refuse(golden("gpt2_tp2"), 2, "how many of its vocabulary's 16 rows are tokens");
  refuse(golden("llama") + " --set model.vocab=13 --set model.layers=2", 2,
         "model.layers: 2 is not the 1 that");
  refuse(golden("llama") + " --format deepspeed", 4, "it has neither *_optim_states.pt nor a");
  refuse(golden("deepspeed") + " --format megatron", 4, "it has no mp_rank_00/, and no .metadata");
}

// As transformers' Trainer leaves them: config.json, `latest`, and shards of every rank below.
TEST(ImportCommand, DeepSpeedsShardsOfTwoRanks) {
  const Scratch scratch;
  fs::copy(golden("deepspeed_zero2"), scratch.path("theirs"), fs::copy_options::recursive);
  const std::string model =
      " --set model.type=llama --set model.layers=1 --set model.hidden=6 --set model.heads=1"
      " --set model.ffn=10 --set model.seq=8 --set model.vocab=13";
  const Finished in = run_program(
      scratch, "checkpoint import theirs -o ours --set model.tie_embeddings=true" + model);
  ASSERT_EQ(in.exit_code, 0) << in.output;
  EXPECT_THAT(in.output, HasSubstr("parameters of DeepSpeed's at step 3, with both moments, its "
                                   "next learning rate 0.01"));
  const Finished out = run_program(scratch, "checkpoint export ours -o hf");
  ASSERT_EQ(out.exit_code, 0) << out.output;
  fs::copy_file(scratch.path("hf/config.json"), scratch.path("theirs/config.json"));
  const Finished described = run_program(scratch, "checkpoint import theirs -o described");
  ASSERT_EQ(described.exit_code, 0) << described.output;
  EXPECT_EQ(all_masters(scratch.path("described")), all_masters(scratch.path("ours")));
  fs::remove(scratch.path("theirs/global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"));
  const Finished lost = run_program(scratch, "checkpoint import theirs -o lost");
  EXPECT_EQ(lost.exit_code, 4) << lost.output;
  EXPECT_THAT(lost.output,
              HasSubstr("bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt: is missing from a "
                        "checkpoint of 2 ranks: copy the files of every rank"));
  EXPECT_FALSE(fs::exists(scratch.path("lost")));
}

TEST(ImportCommand, AMegatronPipelineWithItsMoments) {
  const Scratch scratch;
  const std::string from = "checkpoint import " + golden("gpt2_pipeline") + " --set model.vocab=21";
  const Finished in = run_program(scratch, from + " -o ours");
  ASSERT_EQ(in.exit_code, 0) << in.output;
  EXPECT_THAT(in.output, HasSubstr("parameters of Megatron's at step 12, with both moments, its "
                                   "next learning rate 0.00025"));
  Checkpoint ours = open_checkpoint(local_file_system(), scratch.path("ours"));
  EXPECT_EQ(ours.manifest().run.updates, 11);
  EXPECT_EQ(ours.manifest().run.skipped_steps, 1);
  EXPECT_EQ(ours.manifest().run.samples, 96);
  EXPECT_TRUE(ours.has("h.3.mlp.c_fc.weight", StateKind::kMoment2));
  const Finished alone = run_program(scratch, from + " -o alone --weights-only");
  ASSERT_EQ(alone.exit_code, 0) << alone.output;
  EXPECT_THAT(alone.output, HasSubstr("at step 12, without moments"));
  const Finished scaled = run_program(
      scratch, "checkpoint import " + golden("llama_uneven") + " -o fp16 --set model.vocab=11");
  ASSERT_EQ(scaled.exit_code, 0) << scaled.output;
  const RunState run = open_checkpoint(local_file_system(), scratch.path("fp16")).manifest().run;
  EXPECT_EQ(run.loss_scale, 1024);
  EXPECT_EQ(run.loss_scale_good_steps, 5);
  EXPECT_EQ(run.loss_scale_lives, 2);
}

// A configuration is taken at its word: nothing in the tensors would contradict it.
TEST(ImportCommand, WhatAConfigurationSaysOtherwiseIsNotTakenInSilence) {
  const Scratch scratch;
  scratch.write("text.txt", "a text");
  const auto import = [&](const std::string& out, const std::string& eps) {
    scratch.write("run.yaml",
                  "model: {type: gpt2, layers: 4, hidden: 6, heads: 2, ffn: 10, seq: 5, vocab: 21, "
                  "norm_eps: " +
                      eps + "}\ndata: {text: [text.txt]}\n");
    const Finished done = run_program(
        scratch, "checkpoint import " + golden("gpt2_pipeline") + " --config run.yaml -o " + out);
    EXPECT_EQ(done.exit_code, 0) << done.output;
    return done.output;
  };
  const std::string said = " of --config is not the ";
  EXPECT_THAT(import("other", "1e-6"), HasSubstr("model.norm_eps: 1e-06" + said));
  EXPECT_THAT(import("same", "1e-5"), ::testing::Not(HasSubstr(said)));
}

TEST(ImportCommand, AMegatronLlamaLeavesForHuggingFace) {
  const Scratch scratch;
  const Finished in = run_program(
      scratch, "checkpoint import " + golden("llama") + " -o ours --set model.vocab=13");
  ASSERT_EQ(in.exit_code, 0) << in.output;
  EXPECT_THAT(in.output, HasSubstr("3 rows of the vocabulary beyond the model's 13 are padding"));
  const Finished out = run_program(scratch, "checkpoint export ours -o hf");
  ASSERT_EQ(out.exit_code, 0) << out.output;
  ASSERT_EQ(run_program(scratch, "checkpoint import hf -o again").exit_code, 0);
  ASSERT_EQ(run_program(scratch, "checkpoint export again -o hf2").exit_code, 0);
  EXPECT_TRUE(scratch.read("hf/model.safetensors") == scratch.read("hf2/model.safetensors"));
}

}  // namespace
}  // namespace sluice::testing
