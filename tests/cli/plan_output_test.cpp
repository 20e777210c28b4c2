// What a plan leaves behind for people: the page, days for a token budget, the advice of a run that
// does not fit, and a run's figures beside the plan's.
#include <gtest/gtest.h>

#include <set>

#include "tests/cli/program.hpp"
#include "tests/page/page_check.hpp"

namespace sluice::testing {
namespace {

using Json = nlohmann::json;

class PlanOutput : public ::testing::Test {
 protected:
  PlanOutput() { write_tiny(scratch_); }
  Finished run(const std::string& arguments,
               const std::map<std::string, std::string>& environment = {}) {
    return run_program(scratch_, arguments, environment);
  }
  Json json(const std::string& arguments) {
    const Finished finished = run(arguments + " --json");
    Json parsed = Json::parse(finished.output, nullptr, false);
    EXPECT_TRUE(parsed.is_object()) << finished.output;
    return parsed;
  }
  Scratch scratch_;
};

// The --set lines of the advice, as one that pastes them into a shell gives them.
std::vector<std::string> set_lines(const Finished& finished) {
  std::vector<std::string> all;
  bool goes_on = false;
  for (std::string line : finished.lines()) {
    if (line.rfind("    --set ", 0) != 0) continue;
    if (!goes_on) all.emplace_back();
    goes_on = line.back() == '\\';
    if (goes_on) line.pop_back();
    all.back() += line;
  }
  return all;
}

TEST_F(PlanOutput, ThePageHoldsThePlan) {
  const std::string command = "plan tiny.yaml --profile cpu --suggest --compare";
  const Finished finished = run(command + " --html page.html");
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_NE(finished.output.find("memory of a rank"), std::string::npos);
  const std::string page = scratch_.read("page.html");
  EXPECT_EQ(tag_mistake(page), "");
  for (const char* place : {"<!--TITLE-->", "<!--DATA-->", "/*SCRIPT*/", "/*STYLE*/"}) {
    EXPECT_EQ(page.find(place), std::string::npos) << place;
  }
  const Json data = Json::parse(data_of(page));
  EXPECT_EQ(data["plan"], json(command));
  EXPECT_EQ(data["tiers"][0]["peak"], data["plan"]["tiers"]["device"]["peak"]);
  EXPECT_EQ(run("plan tiny.yaml --profile cpu --html nowhere/page.html").exit_code, 4);
  EXPECT_EQ(tag_mistake(run(command + " --html - 2>said | cat").output), "");
  EXPECT_NE(scratch_.read("said").find("memory of a rank"), std::string::npos);
}

// The key is the file's, the reason an override's: a note, on standard error once.
TEST_F(PlanOutput, AKeyWithoutEffectIsNotedOnce) {
  scratch_.write("override.yaml", "base: tiny.yaml\ntrain: {eval_every: 5}\n");
  const std::string note =
      "note: override.yaml:2:21: train.eval_every: no effect: only where train.eval_steps is above "
      "0\n";
  for (const char* command : {"plan override.yaml --profile cpu --json", "plan override.yaml",
                              "train override.yaml --dry-run", "train override.yaml"}) {
    const Finished finished = run(std::string(command) + " --set train.eval_steps=0");
    EXPECT_EQ(finished.exit_code, 0) << finished.output;
    const std::size_t at = finished.output.find(note);
    ASSERT_NE(at, std::string::npos) << finished.output;
    EXPECT_EQ(finished.output.find(note, at + 1), std::string::npos) << finished.output;
    if (std::string(command).ends_with("--json")) {
      const Json plan = Json::parse(finished.output.substr(at + note.size()), nullptr, false);
      ASSERT_TRUE(plan.is_object());
      EXPECT_EQ("note: " + plan["notes"].back().get<std::string>() + "\n", note);
    }
  }
}

TEST_F(PlanOutput, AShareOfTheHostThatWholeGroupsDoNotFillIsNoted) {
  const auto note_with = [&](const std::string& fraction) {
    const Json plan = json(
        "plan tiny.yaml --profile cpu --set offload.optimizer=nvme --set offload.nvme_path=[d] "
        "--set memory.host=1GiB --set offload.host_fraction=" +
        fraction);
    const std::string notes = plan["notes"].dump();
    const std::size_t at = notes.find("offload.host_fraction: only whole groups");
    return at == std::string::npos ? "" : notes.substr(at);
  };
  EXPECT_NE(note_with("0.001").find(", which makes 0 in place of 0.001; the largest group is 0."),
            std::string::npos);
  EXPECT_EQ(note_with("0.9"), "");
}

// A bf16 folder trains in fp32 only where somebody says so.
TEST_F(PlanOutput, WeightsOf16BitsThatARunWidensAreNoted) {
  const std::string golden = SLUICE_SOURCE_DIR "/tests/golden/hf/";
  const auto plan = [&](const std::string& family, const std::string& set) {
    return run("plan hf.yaml --profile cpu --set model.from=" + golden + family + set).output;
  };
  scratch_.write("hf.yaml", "data: {train: [tokens], tokenizer: bytes}\n");
  const std::string note =
      "note: model.from: the weights are bf16 and train.dtype is fp32: --set train.dtype=bf16 "
      "halves";
  EXPECT_NE(plan("llama", "").find(note), std::string::npos) << plan("llama", "");
  for (const char* dtype : {"fp32", "bf16"}) {
    const std::string text = plan("llama", std::string(" --set train.dtype=") + dtype);
    EXPECT_EQ(text.find("the weights are"), std::string::npos) << text;
  }
  EXPECT_EQ(plan("gpt2", "").find("the weights are"), std::string::npos);
}

TEST_F(PlanOutput, RotaryPositionsBeyondTheFoldersAreNoted) {
  const std::string golden = SLUICE_SOURCE_DIR "/tests/golden/hf/";
  scratch_.write("hf.yaml", "data: {train: [tokens], tokenizer: bytes}\n");
  for (const std::string family : {"llama", "mistral"}) {
    const auto plan = [&](const std::string& seq) {
      return run("plan hf.yaml --profile cpu --set model.from=" + golden + family +
                 " --set model.seq=" + seq)
          .output;
    };
    const std::string note = "is more than the 32 positions (max_position_embeddings) of " + golden;
    EXPECT_NE(plan("33").find("note: model.seq: 33 " + note), std::string::npos) << plan("33");
    EXPECT_EQ(plan("32").find(note), std::string::npos);
  }
}

TEST_F(PlanOutput, OtherNumbersAreNoSuggestionsAndNotSaidTwice) {
  const std::string wide =
      " --profile h100-sxm --suggest --set model.hidden=512 --set model.heads=8";
  const Json plan = json("plan tiny.yaml" + wide);
  ASSERT_EQ(plan["other_numbers"].size(), 1U);
  const Json& other = plan["other_numbers"][0];
  EXPECT_EQ(other["with"], "train.dtype bf16");
  EXPECT_EQ(other["set"]["train.dtype"], "bf16");
  EXPECT_LE(other["step_ms"].get<double>(), 0.9 * plan["suggestions"][0]["step_ms"].get<double>());
  for (const Json& one : plan["suggestions"]) EXPECT_FALSE(one["set"].contains("train.dtype"));
  const std::string bf16 = "with train.dtype bf16 (other numbers):\n";
  EXPECT_NE(run("plan tiny.yaml" + wide).output.find(bf16), std::string::npos);
  // Of a folder with weights of 16 bits the note says so.
  scratch_.write("hf.yaml", "model: {from: " SLUICE_SOURCE_DIR
                            "/tests/golden/hf/llama}\ndata: {train: [tokens], tokenizer: bytes}\n");
  const std::string noted = run("plan hf.yaml --profile h100-sxm --suggest").output;
  EXPECT_NE(noted.find("the weights are bf16"), std::string::npos) << noted;
  EXPECT_EQ(noted.find(bf16), std::string::npos) << noted;
}

TEST_F(PlanOutput, AModelFromThatIsNoFolderOfAModel) {
  const auto from = [&](const std::string& dir) {
    return run("plan tiny.yaml --profile cpu --set model.from=" + dir).output;
  };
  EXPECT_NE(from("org/name")
                .find("--set model.from=org/name: model.from: there is no folder "
                      "org/name, and Sluice downloads nothing: `hf download org/name "
                      "--local-dir DIR`, then name DIR"),
            std::string::npos)
      << from("org/name");
  std::filesystem::create_directory(scratch_.path("lora"));
  scratch_.write("lora/adapter_config.json", "{}");
  EXPECT_NE(from("lora").find("model.from: lora is an adapter (adapter_config.json), not a model: "
                              "merge it into its model first"),
            std::string::npos);
  EXPECT_NE(from("none").find("there is no none/config.json; expected a Hugging Face folder"),
            std::string::npos);
}

TEST_F(PlanOutput, AFolderWithoutATokenizerCanBePlanned) {
  const std::string config = SLUICE_SOURCE_DIR "/tests/golden/hf/llama/config.json";
  std::filesystem::create_directory(scratch_.path("hf"));
  std::filesystem::copy_file(config, scratch_.path("hf/config.json"));
  scratch_.write("hf.yaml", "model: {from: hf, seq: 8}\ndata: {text: [x.txt]}\n");
  const Finished finished = run("plan hf.yaml --profile cpu");
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_NE(finished.output.find("recompute none, 1 micro-batch in micro"), std::string::npos)
      << finished.output;
  EXPECT_NE(run("train hf.yaml --dry-run").output.find("has no tokenizer.json"), std::string::npos);
}

TEST_F(PlanOutput, TheFirstEditOfTheQuickstartWorks) {
  scratch_.write("share.yaml", "base: tiny.yaml\nschedule: {warmup_steps: 5%}\n");
  const Finished finished = run("train share.yaml --set train.steps=4");
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_EQ(scratch_.metrics("run").size(), 4U);
  EXPECT_NE(scratch_.read("run/config.yaml").find("warmup_steps: 5%"), std::string::npos);
}

TEST_F(PlanOutput, DaysForATokenBudgetAndDrivesForIt) {
  const std::string command =
      "plan tiny.yaml --profile cpu --set offload.optimizer=nvme --set offload.nvme_path=[d] "
      "--tokens 15T --endurance 600TB";
  const Json plan = json(command);
  const Json& budget = plan["token_budget"];
  EXPECT_EQ(budget["tokens"], 15'000'000'000'000);
  const double steps = 15e12 / plan["tokens_per_step"].get<double>();
  EXPECT_NEAR(budget["steps"].get<double>(), steps, 1);
  EXPECT_NEAR(budget["seconds"].get<double>() / (steps * plan["step_ms"].get<double>() * 1e-3), 1,
              1e-6);
  const double written = 2 * plan["nvme_write_bytes_per_step"].get<double>();
  EXPECT_EQ(plan["per_node"]["nvme_write_bytes_per_step"], written);
  EXPECT_NEAR(plan["drive_seconds"].get<double>() * written / plan["step_ms"].get<double>() * 1e3,
              6e14, 6e8);
  const Finished text = run(command);
  for (const char* part : {"15.0T tokens: ", "the run: 30 steps", "a drive rated for 600 TB lasts ",
                           ", by 15.0T tokens: ", "the node of 2 ranks: device "}) {
    EXPECT_NE(text.output.find(part), std::string::npos) << part << "\n" << text.output;
  }
  for (const std::string& line : text.lines()) EXPECT_LE(line.size(), 80U) << line;
  EXPECT_EQ(json("plan tiny.yaml --profile cpu")["token_budget"], nullptr);
  for (const char* tokens : {"many", "-3B", "0", "1.5"}) {
    EXPECT_EQ(run(std::string("plan tiny.yaml --tokens ") + tokens).exit_code, 2) << tokens;
    const Finished drive = run(std::string("plan tiny.yaml --endurance ") + tokens);
    EXPECT_EQ(drive.exit_code, 2) << tokens;
    EXPECT_NE(drive.output.find(std::string("--endurance: found '") + tokens +
                                "', expected a size above 0 such as 600TB"),
              std::string::npos)
        << drive.output;
  }
}

TEST_F(PlanOutput, CardsOfOneHostAreOnOneHost) {
  const std::string four =
      "plan tiny.yaml --profile rtx4090 --set zero.stage=2 --set launch.nproc=4";
  EXPECT_EQ(json(four)["per_node"]["ranks"], 4);
  EXPECT_EQ(run(four).output.find("one card a host"), std::string::npos);
  const std::string asked = "plan tiny.yaml --profile rtx4090 --world 4 --set launch.nproc=0";
  EXPECT_EQ(json(asked)["per_node"]["ranks"], 1);
  EXPECT_NE(run(asked).output.find("--set launch.nproc=4 puts them on one"), std::string::npos);
}

TEST_F(PlanOutput, TheDeviceOfTablesHasNcclsBuffers) {
  const Json plan =
      json("plan tiny.yaml --profile h100-sxm --world 2 --set zero.stage=2 --suggest --compare");
  const Json& device = plan["tiers"]["device"];
  const auto need =
      device["peak"].get<std::int64_t>() + device["nccl_estimate"].get<std::int64_t>();
  EXPECT_GT(need, device["peak"].get<std::int64_t>());
  const Json& first = plan["compare"].at(0);  // nothing off the device
  bool found = false;
  for (const Json& cell : plan["compare"]) {
    if (cell["offload"] != first["offload"] || cell["stage"] != 2) continue;
    EXPECT_EQ(cell["peak"]["device"], need);
    found = true;
  }
  EXPECT_TRUE(found) << plan["compare"];
  ASSERT_FALSE(plan["suggestions"].empty());
  for (const Json& suggestion : plan["suggestions"]) {
    EXPECT_GT(suggestion["peak"]["device"].get<std::int64_t>(),
              device["nccl_estimate"].get<std::int64_t>());
  }
}

TEST_F(PlanOutput, ARunThatDoesNotFitSaysWhatWould) {
  const auto peak =
      json("plan tiny.yaml --profile cpu")["tiers"]["device"]["peak"].get<std::int64_t>();
  const std::string command =
      "train tiny.yaml --set memory.device=" + std::to_string(peak * 9 / 10);
  // Rates of the machine that the test runs on would make another order.
  const std::map<std::string, std::string> environment{{"XDG_CACHE_HOME", scratch_.path("none")}};
  const Finished refused = run(command, environment);
  EXPECT_EQ(refused.exit_code, 3) << refused.output;
  EXPECT_LT(refused.seconds, 30);  // three times what is promised, of a busy machine
  EXPECT_NE(refused.output.find("memory.device: a step needs "), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("run")));
  const auto said = [](const Finished& finished) {
    return finished.output.substr(
        std::min(finished.output.find("sluice: "), finished.output.size()));
  };
  EXPECT_EQ(said(run(command, environment)), said(refused));
  EXPECT_EQ(run(command + " --dry-run", environment).exit_code, 3);
  int fitting = 0;
  for (const std::string& line : set_lines(refused)) {
    if (line.find("nvme_path") != std::string::npos) continue;
    EXPECT_EQ(run(command + line + " --dry-run").exit_code, 0) << line;
    ++fitting;
  }
  EXPECT_GT(fitting, 0) << refused.output;
}

TEST_F(PlanOutput, WhereNothingFitsTheNearestMissIsNamed) {
  const Finished refused =
      run("train tiny.yaml --set memory.device=4KiB --set memory.host=4KiB --set memory.nvme=4KiB");
  EXPECT_EQ(refused.exit_code, 3);
  for (const char* part : {"nothing fits; this misses least:", " too much\n", "    --set "}) {
    EXPECT_NE(refused.output.find(part), std::string::npos) << part << "\n" << refused.output;
  }
}

TEST_F(PlanOutput, ARunStandsBesideItsPlan) {
  const Finished finished =
      run("train tiny.yaml --set train.steps=5 --set output.trace=true"
          " --set offload.optimizer=host");
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  for (const char* part : {"device peak: planned ", "host peak: planned ", "step time: planned "}) {
    EXPECT_NE(finished.output.find(part), std::string::npos) << part << "\n" << finished.output;
  }
  const std::vector<Json> metrics = scratch_.metrics("run");
  ASSERT_EQ(metrics.size(), 5U);
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    ASSERT_EQ(metrics[i].contains("plan_error"), i >= 2) << i;
    if (i < 2) continue;
    const Json& error = metrics[i]["plan_error"];
    EXPECT_NEAR(error["device"].get<double>(), 0, 0.01);
    EXPECT_NEAR(error["host"].get<double>(), 0, 0.01);
    EXPECT_FALSE(error.contains("nvme"));
    EXPECT_GT(error["step_ms"].get<double>(), -1);
  }
  // The prediction is one: what was measured over one plus its error.
  const auto planned_ms = [&](std::size_t i) {
    return metrics[i]["step_ms"].get<double>() /
           (1 + metrics[i]["plan_error"]["step_ms"].get<double>());
  };
  EXPECT_NEAR(planned_ms(2), planned_ms(4), 1e-6 * planned_ms(2));
  const Json trace = Json::parse(scratch_.read("run/trace.json"));
  std::set<std::string> measured;
  std::set<std::string> predicted;
  std::string name;
  double first = 1e18;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name" && event["pid"] == 1) name = event["args"]["name"];
    if (event["ph"] != "X") continue;
    (event["pid"] == 1 ? predicted : measured).insert(event["cat"].get<std::string>());
    if (event["pid"] == 1) first = std::min(first, event["ts"].get<double>());
  }
  EXPECT_EQ(name, "predicted");
  EXPECT_EQ(first, 0);
  for (const char* lane : {"compute", "comm", "host"}) {
    EXPECT_TRUE(predicted.contains(lane)) << lane;
    EXPECT_TRUE(measured.contains(lane)) << lane;
  }
}

}  // namespace
}  // namespace sluice::testing
