// `sluice checkpoint import` of DeepSpeed's and Megatron's checkpoints, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/checkpoint/checkpoint_load.hpp"
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

std::string curve(const Scratch& scratch, const std::string& run, int after) {
  std::string text;
  for (const nlohmann::json& step : scratch.metrics(run)) {
    if (!step.contains("loss") || step["step"] <= after) continue;
    text += step["step"].dump() + " " + step["loss"].dump() + " " + step["grad_norm"].dump() + "\n";
  }
  return text;
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
  EXPECT_EQ(curve(scratch, "on", 3), curve(scratch, "whole", 3));
  EXPECT_FALSE(curve(scratch, "on", 3).empty());
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
  refuse(golden("llama") + " --format deepspeed", 4, "it has no zero/");
  refuse(golden("deepspeed") + " --format megatron", 4, "it has no mp_rank_00/");
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
