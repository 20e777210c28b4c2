// `sluice plan` as a user runs it: fields, exit codes, and machines that are not here.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/program.hpp"

namespace sluice::testing {
namespace {

constexpr char kLlama70B[] =
    "model: {type: llama, layers: 80, hidden: 8192, heads: 64, kv_heads: 8, ffn: 28672,\n"
    "        vocab: 128256, seq: 8192, tie_embeddings: false}\n"
    "data: {text: [nowhere.txt]}\n"
    "train: {steps: 1000, micro_batch: 1, global_batch: 512, dtype: bf16}\n"
    "zero: {stage: 3}\n";

struct Planned {
  int exit_code = 0;
  nlohmann::json json;
};

// REQUIRES: no shell characters that a plan's exit code would get lost behind.
Planned plan(const Scratch& scratch, const std::string& arguments) {
  const Finished run = run_program(scratch, "plan " + arguments + " --json");
  Planned planned{run.exit_code, nlohmann::json::parse(run.output, nullptr, false)};
  EXPECT_TRUE(planned.json.is_object()) << run.output;
  return planned;
}

TEST(Plan, JsonHasTheContract) {
  const Scratch scratch;
  write_tiny(scratch);
  const Planned planned = plan(scratch, "tiny.yaml --profile cpu --set zero.stage=2");
  EXPECT_EQ(planned.exit_code, 0);
  const nlohmann::json& json = planned.json;
  EXPECT_EQ(json["fits"], true);
  for (const char* tier : {"device", "host", "pinned", "nvme"}) {
    ASSERT_TRUE(json["tiers"].contains(tier)) << tier;
    EXPECT_TRUE(json["tiers"][tier].contains("peak"));
    EXPECT_TRUE(json["tiers"][tier].contains("budget"));
    EXPECT_TRUE(json["tiers"][tier]["by_tag"].is_object());
  }
  EXPECT_GT(json["tiers"]["device"]["peak"].get<std::int64_t>(), 100'000);
  for (const char* phase : {"load", "forward", "backward", "update"}) {
    ASSERT_TRUE(json["by_phase"].contains(phase)) << phase;
    EXPECT_LE(json["by_phase"][phase]["device"]["peak"].get<std::int64_t>(),
              json["tiers"]["device"]["peak"].get<std::int64_t>());
  }
  EXPECT_GT(json["step_ms"].get<double>(), 0);
  EXPECT_GT(json["tokens_per_s"].get<double>(), 0);
  EXPECT_EQ(json["limiting_lane"], "compute");
  EXPECT_EQ(json["bubble"], 0.0);
  EXPECT_GT(json["comm_bytes"].get<std::int64_t>(), 0);
  EXPECT_EQ(json["nvme_write_bytes_per_step"], 0);
  EXPECT_TRUE(json["suggestions"].is_array());
  EXPECT_EQ(json["rank_classes"][0]["ranks"], 2);
  EXPECT_FALSE(std::filesystem::exists(scratch.path("run")));
}

// The weight products of a split backward read activations that were kept for both halves.
TEST(Plan, TagsOfAPhaseAreNoMoreThanItsPeak) {
  const Scratch scratch;
  write_tiny(scratch);
  const Planned planned = plan(scratch,
                               "tiny.yaml --profile cpu --set parallel.pipeline=2 --set "
                               "parallel.schedule=zero_bubble --set zero.stage=1 --set "
                               "train.micro_batch=1");
  for (const nlohmann::json& phase : planned.json["by_phase"]) {
    std::int64_t sum = 0;
    for (const nlohmann::json& bytes : phase["device"]["by_tag"]) sum += bytes.get<std::int64_t>();
    EXPECT_LE(sum, phase["device"]["peak"].get<std::int64_t>()) << phase;
  }
}

TEST(Plan, SomePhaseReachesTheTiersPeak) {
  const Scratch scratch;
  write_tiny(scratch);
  const Planned planned = plan(scratch, "tiny.yaml --profile cpu --set offload.optimizer=host");
  for (const char* tier : {"device", "host"}) {
    std::int64_t highest = 0;
    for (const nlohmann::json& phase : planned.json["by_phase"]) {
      highest = std::max(highest, phase[tier]["peak"].get<std::int64_t>());
    }
    EXPECT_GT(highest, 0);
    EXPECT_EQ(planned.json["tiers"][tier]["peak"], highest) << tier;
  }
}

TEST(Plan, AgreesWithTheDryRunOfTraining) {
  const Scratch scratch;
  write_tiny(scratch);
  const Planned planned = plan(scratch, "tiny.yaml --profile cpu");
  const Finished train = run_program(scratch, "train tiny.yaml --set train.steps=1");
  ASSERT_EQ(train.exit_code, 0) << train.output;
  const nlohmann::json json = nlohmann::json::parse(scratch.read("run/plan.json"));
  for (const char* tier : {"device", "host", "nvme"}) {
    EXPECT_EQ(planned.json["tiers"][tier]["peak"], json["tiers"][tier]["peak"]) << tier;
  }
  EXPECT_EQ(planned.json["comm_bytes"], json["comm_bytes"]);
  EXPECT_EQ(planned.json["operations"], json["operations"]);
}

TEST(Plan, WhatDoesNotFitExitsThreeAndSaysHowMuch) {
  const Scratch scratch;
  write_tiny(scratch);
  const Planned planned =
      plan(scratch, "tiny.yaml --profile cpu --suggest --set memory.device=64KiB");
  EXPECT_EQ(planned.exit_code, 3);
  EXPECT_EQ(planned.json["fits"], false);
  EXPECT_EQ(planned.json["missing"].get<std::int64_t>(),
            planned.json["tiers"]["device"]["peak"].get<std::int64_t>() - 64 * 1024);
  ASSERT_FALSE(planned.json["suggestions"].empty());
  EXPECT_GT(planned.json["search"]["evaluated"].get<int>(), 0);
}

// A suggestion's --set line, given back, is the plan that was promised.
TEST(Plan, SuggestionsCanBeGivenBack) {
  const Scratch scratch;
  write_tiny(scratch);
  const Planned base = plan(scratch, "tiny.yaml --profile cpu");
  const auto budget = base.json["tiers"]["device"]["peak"].get<std::int64_t>() * 9 / 10;
  const std::string limit = " --set memory.device=" + std::to_string(budget);
  const Planned advised = plan(scratch, "tiny.yaml --profile cpu --suggest" + limit);
  EXPECT_EQ(advised.exit_code, 3);
  ASSERT_FALSE(advised.json["suggestions"].empty());
  for (const nlohmann::json& suggestion : advised.json["suggestions"]) {
    auto line = suggestion["set_line"].get<std::string>();
    const std::size_t folder = line.find("[DIR]");
    if (folder != std::string::npos) line.replace(folder, 5, "[" + scratch.path("drive") + "]");
    const Planned again = plan(scratch, "tiny.yaml --profile cpu " + line + limit);
    EXPECT_EQ(again.exit_code, 0) << line;
    EXPECT_EQ(again.json["tiers"]["device"]["peak"], suggestion["peak"]["device"]) << line;
    EXPECT_NEAR(again.json["step_ms"].get<double>() / suggestion["step_ms"].get<double>(), 1, 1e-9)
        << line;
  }
}

TEST(Plan, WorldsThatAreNotHere) {
  const Scratch scratch;
  scratch.write("70b.yaml", kLlama70B);
  const Planned planned = plan(scratch, "70b.yaml --world 64 --profile h100-sxm");
  EXPECT_EQ(planned.exit_code, 3);
  EXPECT_EQ(planned.json["ranks"], 64);
  EXPECT_EQ(planned.json["nodes"], 8);
  EXPECT_NEAR(planned.json["parameters"].get<double>(), 70.55e9, 0.02e9);
  // Weights, master weights, moments and gradients of a 64th: 2 + 4 + 8 + 4 bytes a parameter.
  const double load = planned.json["by_phase"]["load"]["device"]["by_tag"]["moments"].get<double>();
  EXPECT_NEAR(load, 8 * 70.55e9 / 64, 0.01 * load);
  const Planned full = plan(scratch,
                            "70b.yaml --world 64 --profile h100-sxm --set recompute.mode=full "
                            "--set memory.device=80GiB");
  EXPECT_EQ(full.exit_code, 0);
  EXPECT_EQ(full.json["tiers"]["device"]["budget"], std::int64_t{80} << 30);
  EXPECT_GT(full.json["mfu"].get<double>(), 0.2);
  EXPECT_LT(full.json["mfu"].get<double>(), 0.6);
}

TEST(Plan, MeshesThatAreNotHere) {
  const Scratch scratch;
  scratch.write("70b.yaml", kLlama70B);
  const Planned planned =
      plan(scratch,
           "70b.yaml --world 64 --profile h100-sxm --set zero.stage=1 --set parallel.tensor=8 "
           "--set parallel.sequence=true --set parallel.pipeline=4");
  EXPECT_EQ(planned.json["mesh"]["data"], 2);
  EXPECT_GT(planned.json["bubble"].get<double>(), 0);
  ASSERT_EQ(planned.json["rank_classes"].size(), 3U);
  EXPECT_EQ(planned.json["rank_classes"][1]["name"], "middle");
  EXPECT_EQ(planned.json["rank_classes"][1]["ranks"], 32);
  ASSERT_EQ(planned.json["stages"].size(), 4U);
  // 1f1b: the first stage holds as many micro-batches as there are stages, the last one.
  EXPECT_EQ(planned.json["stages"][0]["in_flight"], 4);
  EXPECT_EQ(planned.json["stages"][3]["in_flight"], 1);
  const nlohmann::json& axes = planned.json["comm_bytes_by_axis"];
  EXPECT_EQ(axes["tensor"]["between_nodes"], 0);
  EXPECT_GT(axes["tensor"]["bytes"].get<std::int64_t>(), 0);
  EXPECT_EQ(axes["pipeline"]["between_nodes"], axes["pipeline"]["bytes"]);
  EXPECT_NEAR(planned.json["parameters"].get<double>(), 70.55e9, 0.02e9);
}

// Few of the thousands of configurations are planned: each plan of such a model takes a tenth of a
// second or more.
TEST(Plan, SuggestionsForSeventyBillionTakeFewPlans) {
  const Scratch scratch;
  scratch.write("70b.yaml", kLlama70B);
  const Planned planned = plan(scratch, "70b.yaml --world 64 --profile h100-sxm --suggest");
  EXPECT_GT(planned.json["search"]["candidates"].get<int>(), 3000);
  EXPECT_LT(planned.json["search"]["evaluated"].get<int>(), 170);
  ASSERT_FALSE(planned.json["suggestions"].empty());
  EXPECT_EQ(planned.json["suggestions"][0]["fits"], true);
  EXPECT_TRUE(planned.json["suggestions"][0]["set"].contains("parallel.tensor"));
}

TEST(Plan, SuggestionsAreTheSameTwice) {
  const Scratch scratch;
  write_tiny(scratch);
  const auto suggestions = [&scratch] {
    return plan(scratch, "tiny.yaml --world 16 --profile h100-sxm --suggest").json["suggestions"];
  };
  const nlohmann::json once = suggestions();
  ASSERT_GT(once.size(), 1U);
  EXPECT_EQ(suggestions(), once);
}

TEST(Plan, TextKeepsToEightyColumns) {
  const Scratch scratch;
  write_tiny(scratch);
  const Finished run =
      run_program(scratch, "plan tiny.yaml --profile h200 --world 16 --compare --suggest");
  EXPECT_EQ(run.exit_code, 0) << run.output;
  for (const std::string& line : run.lines()) EXPECT_LE(line.size(), 80U) << line;
  for (const char* part : {"memory of a rank", "limited by", "one step", "stage 3", "--set"}) {
    EXPECT_NE(run.output.find(part), std::string::npos) << part;
  }
}

// What a GPU's rank would refuse is refused of a GPU's profile, in the same words; of a CPU's it is
// no mistake. Flash attention over documents, which autograd needs there, takes no such heads.
TEST(Plan, RefusesOnAGpuWhatTrainRefusesThere) {
  const Scratch scratch;
  write_tiny(scratch);
  const std::string documents = " --set data.document_mask=true --set train.dtype=bf16";
  const std::string autograd = documents + " --set model.explicit_units=false";
  const std::string refused = autograd + " --set model.heads=16";
  const Finished train =
      run_program(scratch, "train tiny.yaml --set launch.backend=nccl" + refused);
  EXPECT_EQ(train.exit_code, 2) << train.output;
  EXPECT_NE(train.output.find("rows of several documents on a GPU need a head_dim that is a "
                              "multiple of 8 up to 256, which 4 is not"),
            std::string::npos)
      << train.output;
  const Finished named = run_program(scratch, "plan tiny.yaml --profile h100-sxm" + refused);
  EXPECT_EQ(named.exit_code, 2);
  EXPECT_EQ(named.output, train.output);
  const Finished found = run_program(scratch, "plan tiny.yaml --set launch.backend=nccl" + refused);
  EXPECT_EQ(found.exit_code, 2);
  EXPECT_EQ(found.output, train.output);
  EXPECT_EQ(plan(scratch, "tiny.yaml --profile cpu" + refused).exit_code, 0);
  const std::string on_gpu = "tiny.yaml --profile h100-sxm --set model.heads=";
  EXPECT_EQ(plan(scratch, on_gpu + "8" + autograd).exit_code, 0);
  EXPECT_EQ(plan(scratch, on_gpu + "16" + documents).exit_code, 0);
}

TEST(Plan, ProductsIn8BitsNeedAGpuThatHasThem) {
  const Scratch scratch;
  write_tiny(scratch);
  const std::string fp8 =
      " --set train.dtype=bf16 --set train.matmul=fp8 --set model.hidden=32 --set model.heads=2";
  const Finished old = run_program(scratch, "plan tiny.yaml --profile a100-80g" + fp8);
  EXPECT_EQ(old.exit_code, 2) << old.output;
  EXPECT_NE(
      old.output.find("train.matmul: fp8 needs a GPU of compute capability 8.9 or higher "
                      "(Ada, Hopper, Blackwell), and this one has 8.0; set train.matmul: auto"),
      std::string::npos)
      << old.output;
  const Finished cpu = run_program(scratch, "plan tiny.yaml --profile cpu" + fp8);
  EXPECT_EQ(cpu.exit_code, 0) << cpu.output;
  EXPECT_NE(cpu.output.find("train.matmul: fp8: a CPU multiplies the rounded values in fp32"),
            std::string::npos)
      << cpu.output;
}

// Attention's deterministic backward takes a copy of dq for each multiprocessor of one sample's one
// head; on capability 9.0 cuBLAS's workspace is larger besides.
TEST(Plan, CountsWhatLibrariesTakeOnTheProfilesCard) {
  const Scratch scratch;
  write_tiny(scratch);
  const auto peak = [&scratch](const std::string& profile) {
    const Planned planned =
        plan(scratch, "tiny.yaml --world 1 --profile " + profile +
                          " --set train.dtype=bf16 --set train.deterministic=true"
                          " --set train.micro_batch=1 --set model.heads=1 --set model.seq=1024");
    return planned.json["tiers"]["device"]["peak"].get<std::int64_t>();
  };
  constexpr std::int64_t kMiB = 1 << 20, kCopy = 1024 * 64 * 4;
  EXPECT_EQ(peak("rtx5090") - peak("rtx3090"), (170 - 82) * kCopy);
  EXPECT_EQ(peak("h100-sxm") - peak("a100-80g"),
            (132 - 108) * kCopy + 32 * kMiB - 8 * kMiB - kMiB / 8);
}

TEST(Plan, AVocabularyMustHoldTheTokenizersIds) {
  const Scratch scratch;
  write_tiny(scratch);
  const std::string small = " --profile cpu --set model.vocab=200";
  const Finished refused = run_program(scratch, "plan tiny.yaml" + small);
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_NE(
      refused.output.find("model.vocab: 200 is less than the 257 ids of the data's tokenizer"),
      std::string::npos)
      << refused.output;
  EXPECT_EQ(run_program(scratch, "plan tiny.yaml --set data.tokenizer=bpe:300" + small).exit_code,
            2);
  // A tokenizer of another machine is not here to be compared.
  EXPECT_EQ(
      run_program(scratch, "plan tiny.yaml --set data.tokenizer=/elsewhere" + small).exit_code, 0);
  EXPECT_EQ(run_program(scratch, "plan tiny.yaml --set data.text=[]" + small).exit_code, 0);
  const Finished open = run_program(scratch, "plan tiny.yaml --profile cpu --set data.text=[]");
  EXPECT_EQ(open.exit_code, 2) << open.output;
  EXPECT_NE(open.output.find("no data is named whose tokenizer would give the vocabulary"),
            std::string::npos)
      << open.output;
}

TEST(Plan, MistakesAreUsageErrors) {
  const Scratch scratch;
  write_tiny(scratch);
  const Finished profile = run_program(scratch, "plan tiny.yaml --profile h1000");
  EXPECT_EQ(profile.exit_code, 2);
  EXPECT_NE(profile.output.find("a100-80g"), std::string::npos) << profile.output;
  EXPECT_EQ(run_program(scratch, "plan tiny.yaml --world 0").exit_code, 2);
  EXPECT_EQ(run_program(scratch, "plan nowhere.yaml").exit_code, 2);
}

}  // namespace
}  // namespace sluice::testing
