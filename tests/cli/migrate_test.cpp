// `sluice migrate` as a user runs it: files, exit codes, and results that `sluice train` accepts.
#include <gtest/gtest.h>

#include "tests/cli/program.hpp"

namespace sluice::testing {
namespace {

constexpr char kStage3[] =
    "{\n"
    "  \"train_micro_batch_size_per_gpu\": 2,\n"
    "  \"gradient_accumulation_steps\": 2,  # a comment\n"
    "  \"bf16\": {\"enabled\": true},\n"
    "  \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3}},\n"
    "  \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"},\n"
    "                        \"overlap_comm\": true}\n"
    "}\n";

constexpr char kModel[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64,\n"
    " \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,\n"
    " \"intermediate_size\": 128, \"vocab_size\": 257, \"max_position_embeddings\": 64,\n"
    " \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false}\n";

class Migrate : public ::testing::Test {
 protected:
  Migrate() { scratch_.write("ds.json", kStage3); }

  Finished run(const std::string& arguments) { return run_program(scratch_, arguments); }

  Scratch scratch_;
};

TEST_F(Migrate, TheResultIsAFileThatADryRunAccepts) {
  const Finished migrated = run("migrate ds.json --world 2 -o out.yaml");
  ASSERT_EQ(migrated.exit_code, 0) << migrated.output;
  EXPECT_NE(migrated.output.find("zero_optimization.stage"), std::string::npos);
  EXPECT_NE(migrated.output.find("defaults that matter"), std::string::npos);
  const std::string yaml = scratch_.read("out.yaml");
  EXPECT_NE(yaml.find("  stage: 3 "), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("# zero_optimization.stage 3"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("FILL IN"), std::string::npos) << yaml;
  const Finished dry = run("train out.yaml --dry-run");
  EXPECT_EQ(dry.exit_code, 0) << dry.output;
}

TEST_F(Migrate, TheResultTrainsOnceItHasAModelAndData) {
  scratch_.write("text.txt", std::string(20'000, 'x') + "abc");
  ASSERT_EQ(run("migrate ds.json --world 2 -o out.yaml --set model.layers=2 --set model.hidden=32 "
                "--set model.heads=2 --set model.seq=32 --set data.text=text.txt --set "
                "train.steps=2 --set output.dir=run")
                .exit_code,
            0);
  const Finished trained = run("train out.yaml");
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_TRUE(std::filesystem::exists(scratch_.path("run/metrics.jsonl")));
}

TEST_F(Migrate, MakesTheFolderOfTheResult) {
  const Finished migrated = run("migrate ds.json --world 2 -o runs/new/out.yaml");
  EXPECT_EQ(migrated.exit_code, 0) << migrated.output;
  EXPECT_TRUE(std::filesystem::exists(scratch_.path("runs/new/out.yaml")));
}

TEST_F(Migrate, NeverOverwrites) {
  scratch_.write("out.yaml", "mine\n");
  const Finished migrated = run("migrate ds.json --world 2 -o out.yaml");
  EXPECT_EQ(migrated.exit_code, 2);
  EXPECT_NE(migrated.output.find(
                "-o out.yaml: the file is there already; name another one, or remove it"),
            std::string::npos)
      << migrated.output;
  EXPECT_EQ(scratch_.read("out.yaml"), "mine\n");
}

TEST_F(Migrate, AMinusIsStandardOutput) {
  const std::string yaml = run("migrate ds.json --world 2 2>report | cat").output;
  EXPECT_EQ(run("migrate ds.json --world 2 -o - 2>again | cat").output, yaml);
  EXPECT_EQ(run("migrate ds.json --world 2 -o - --json 2>json | cat").output, yaml);
  EXPECT_NE(yaml.find("zero:"), std::string::npos) << yaml;
  EXPECT_EQ(scratch_.read("again"), scratch_.read("report"));
  EXPECT_TRUE(nlohmann::json::accept(scratch_.read("json"))) << scratch_.read("json");
}

TEST_F(Migrate, ARefusedMigrationWritesNothing) {
  scratch_.write(
      "adagrad.json",
      "{\"train_batch_size\": 4, \"optimizer\": {\"type\": \"Adagrad\", \"params\": {}}}");
  const Finished migrated = run("migrate adagrad.json --world 1 -o out.yaml");
  EXPECT_EQ(migrated.exit_code, 2);
  EXPECT_NE(migrated.output.find("adagrad.json:1:"), std::string::npos) << migrated.output;
  EXPECT_NE(migrated.output.find("--allow optimizer.type"), std::string::npos) << migrated.output;
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("out.yaml")));
}

TEST_F(Migrate, ACheckWritesNothing) {
  const Finished migrated = run("migrate ds.json --world 2 --check");
  EXPECT_EQ(migrated.exit_code, 0) << migrated.output;
  EXPECT_EQ(migrated.output.find("train:\n"), std::string::npos) << migrated.output;
}

TEST_F(Migrate, JsonHasTheContract) {
  const Finished migrated = run("migrate ds.json --world 2 --json");
  ASSERT_EQ(migrated.exit_code, 0) << migrated.output;
  const nlohmann::json json = nlohmann::json::parse(migrated.output);
  EXPECT_EQ(json["effective"]["train_batch_size"], 8);
  EXPECT_EQ(json["effective"]["gradient_clipping"], 1.0);
  EXPECT_TRUE(json["errors"].empty());
  EXPECT_TRUE(json["config"].is_string());
  bool has_stage = false;
  for (const nlohmann::json& key : json["keys"]) {
    if (key["path"] != "zero_optimization.stage") continue;
    has_stage = true;
    EXPECT_EQ(key["class"], "mapped");
    EXPECT_EQ(key["value"], 3);
    EXPECT_EQ(key["to"]["zero.stage"], "3");
  }
  EXPECT_TRUE(has_stage);
}

TEST_F(Migrate, AModelFillsSizesAndShowsTheMemory) {
  std::filesystem::create_directories(scratch_.path("hf"));
  scratch_.write("hf/config.json", kModel);
  const Finished migrated = run("migrate ds.json --world 2 --model hf --json");
  ASSERT_EQ(migrated.exit_code, 0) << migrated.output;
  const nlohmann::json json = nlohmann::json::parse(migrated.output);
  ASSERT_GE(json["memory"].size(), 2U) << json["memory"];
  EXPECT_EQ(json["memory"][0]["problem"], "");
  EXPECT_GT(json["memory"][0]["host"].get<std::int64_t>(), 0);
  bool without = false;
  for (const nlohmann::json& plan : json["memory"]) {
    if (plan["of"] != "without offload") continue;
    without = true;
    EXPECT_EQ(plan["host"], 0);
    EXPECT_GT(plan["device"], json["memory"][0]["device"]);
  }
  EXPECT_TRUE(without);
  EXPECT_NE(json["config"].get<std::string>().find("from: \"hf\""), std::string::npos);
}

// The model has 2 layers, 4 heads and 2 key heads, GPT-2 small 12 of each.
TEST_F(Migrate, TheRulesHoldForTheModelOfTheFolder) {
  std::filesystem::create_directories(scratch_.path("hf"));
  scratch_.write("hf/config.json", kModel);
  const Finished fits =
      run("migrate ds.json --world 8 --model hf --check --set parallel.tensor=4 --set "
          "parallel.pipeline=2 --set parallel.stage_layers=[1,1]");
  EXPECT_EQ(fits.exit_code, 0) << fits.output;
  const Finished tensor =
      run("migrate ds.json --world 3 --model hf -o out.yaml --set parallel.tensor=3");
  EXPECT_EQ(tensor.exit_code, 2);
  EXPECT_NE(tensor.output.find("the result would break a rule of Sluice: parallel.tensor: "
                               "model.heads must be a multiple of tensor: 4 % 3 = 1"),
            std::string::npos)
      << tensor.output;
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("out.yaml")));
}

TEST_F(Migrate, TheReportHasTheMemoryOfAHost) {
  std::filesystem::create_directories(scratch_.path("hf"));
  scratch_.write("hf/config.json", kModel);
  const Finished migrated = run("migrate ds.json --world 2 --model hf --check");
  EXPECT_NE(migrated.output.find(" for 2 ranks of a host)"), std::string::npos) << migrated.output;
}

TEST_F(Migrate, AModelMustAgreeWithTheFlags) {
  std::filesystem::create_directories(scratch_.path("hf"));
  scratch_.write("hf/config.json", kModel);
  const Finished other = run("migrate ds.json --world 2 --model hf --hidden-size 128");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.output.find("--hidden-size 128: the model of hf/config.json has 64; leave the "
                              "flag out"),
            std::string::npos)
      << other.output;
  const Finished none = run("migrate ds.json --model nowhere");
  EXPECT_EQ(none.exit_code, 4);
  EXPECT_NE(none.output.find("expected a Hugging Face folder"), std::string::npos) << none.output;
}

TEST_F(Migrate, ALaunchLineFindsConfigurationRanksAndTrainer) {
  scratch_.write("auto.json",
                 "{\"train_micro_batch_size_per_gpu\": \"auto\", \"zero_optimization\": "
                 "{\"stage\": 2}, \"bf16\": {\"enabled\": \"auto\"}}");
  const Finished migrated = run(
      "migrate --json --launch 'deepspeed --num_gpus 2 train.py --deepspeed auto.json --bf16 True "
      "--per_device_train_batch_size 4 --max_steps 10'");
  ASSERT_EQ(migrated.exit_code, 0) << migrated.output;
  const std::string yaml = nlohmann::json::parse(migrated.output)["config"].get<std::string>();
  for (const char* line : {"  micro_batch: 4 ", "  dtype: bf16 ", "  steps: 10 ", "  nproc: 2 "}) {
    EXPECT_NE(yaml.find(line), std::string::npos) << line << "\n" << yaml;
  }
}

TEST_F(Migrate, PrintsWhatBecomesOfEveryKey) {
  const Finished keys = run("migrate --keys");
  EXPECT_EQ(keys.exit_code, 0);
  EXPECT_NE(keys.output.find("gather_16bit_weights_on_model_save"), std::string::npos);
}

}  // namespace
}  // namespace sluice::testing
