#include "configs/migrate/other_file.hpp"

#include <gtest/gtest.h>

namespace sluice::migrate {
namespace {

TEST(OtherFile, IsNamedWithARemedy) {
  EXPECT_EQ(other_file("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n", "acc.yaml"),
            "this is a configuration of accelerate: `sluice migrate --accelerate acc.yaml` makes a "
            "Sluice configuration of it");
  const std::string neox =
      "this is a configuration of GPT-NeoX, whose model, data and schedule would be lost; write "
      "its DeepSpeed keys into a file of their own, and give the rest with --set";
  EXPECT_EQ(other_file("{\"pipe_parallel_size\": 1, \"num_layers\": 12,  # comment\n"
                       "\"hidden_size\": 768, \"zero_optimization\": {\"stage\": 1}}",
                       "125M.yml"),
            neox);
  EXPECT_EQ(other_file("{\"num-layers\": 12, \"hidden-size\": 768}", "125M.yml"), neox);
  EXPECT_EQ(other_file("base_model: llama\nfsdp:\n  - full_shard\n  - auto_wrap\n", "x.yml"),
            "this is YAML, and DeepSpeed reads JSON; name the DeepSpeed file of the job");
}

TEST(OtherFile, NamesAxolotlLlamaFactoryAndTorchtitan) {
  const std::string lost =
      ", whose model, data and adapters would be lost: give its DeepSpeed file, `sluice migrate ";
  const std::string rest = "`, and batch, optimizer and schedule with --set";
  EXPECT_EQ(other_file("base_model: a/b\nmicro_batch_size: 2\noutput_dir: o\n"
                       "deepspeed: ds/zero2.json # a comment\n",
                       "x.yml"),
            "this is a file of axolotl" + lost + "ds/zero2.json" + rest);
  for (const char* text : {"stage: sft\ntemplate: qwen\nlearning_rate: 1.0e-5\ndeepspeed:\n",
                           "finetuning_type: lora\ncutoff_len: 2048\n",
                           "model: Qwen/Qwen3\nmodel_class: llm\ntrain_dataset: d.yaml\n"}) {
    EXPECT_EQ(other_file(text, "x.yml"),
              "this is a file of LLaMA-Factory" + lost + "DS.json" + rest);
  }
  EXPECT_EQ(other_file("# llama\n[training]\nsteps = 5\n", "t.toml"),
            "this is a configuration of torchtitan: `sluice migrate --torchtitan t.toml` makes a "
            "Sluice configuration of it");
}

TEST(OtherFile, LeavesDeepSpeedsFilesAlone) {
  for (const char* text : {"{\"train_batch_size\": 4}", "train_batch_size: 4", "", "{",
                           "  // comment\n{\"a\": [1, ], }", "{\"hidden_size\": 4}"}) {
    EXPECT_EQ(other_file(text, "ds.json"), "") << text;
  }
}

}  // namespace
}  // namespace sluice::migrate
