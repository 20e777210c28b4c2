// Whole runs: what they leave behind, and that the stages shrink what a rank holds.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>

#include "tests/cli/program.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

TEST(Train, LearnsAndLeavesTheFilesOfARun) {
  const Scratch scratch;
  write_tiny(scratch);
  const Finished run =
      run_program(scratch, "train tiny.yaml --set train.sample_tokens=12 --set output.trace=true");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  const std::vector<nlohmann::json> metrics = scratch.metrics("run");
  ASSERT_EQ(metrics.size(), 30U);
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    for (const char* key : {"loss", "grad_norm", "lr", "loss_scale", "skipped", "tokens", "step_ms",
                            "tokens_per_s", "tflops", "mfu", "memory", "timers_ms"}) {
      EXPECT_TRUE(metrics[i].contains(key)) << key;
    }
    EXPECT_EQ(metrics[i]["step"], i + 1);
    EXPECT_EQ(metrics[i]["tokens"], (i + 1) * 2 * 2 * 64);
  }
  EXPECT_LT(metrics.back()["loss"].get<double>(), 0.8 * metrics.front()["loss"].get<double>());
  EXPECT_TRUE(metrics.back().contains("eval_loss"));
  EXPECT_NE(run.output.find(" step 10/30 | loss "), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("--- with this ---"), std::string::npos);
  for (const char* file : {"config.yaml", "plan.json", "rank-0.log", "rank-1.log", "trace.json"}) {
    EXPECT_FALSE(scratch.read(std::string("run/") + file).empty()) << file;
  }
  const nlohmann::json plan = nlohmann::json::parse(scratch.read("run/plan.json"));
  const double planned = plan["tiers"]["device"]["peak"];
  const double measured = metrics[5]["memory"]["device_peak"];
  EXPECT_NEAR(measured / planned, 1.0, 0.01);
  // One meaning each: what the host tier holds, and what the process has.
  EXPECT_EQ(metrics[5]["memory"]["host_peak"], plan["tiers"]["host"]["peak"]);
  EXPECT_GT(metrics[5]["memory"]["resident_peak"].get<double>(), measured);
}

TEST(Train, TheResolvedConfigurationRepeatsTheRun) {
  const Scratch scratch;
  write_tiny(scratch);
  ASSERT_EQ(run_program(scratch, "train tiny.yaml --set train.steps=3").exit_code, 0);
  ASSERT_EQ(run_program(scratch, "train run/config.yaml --set output.dir=again").exit_code, 0);
  const auto first = scratch.metrics("run");
  const auto second = scratch.metrics("again");
  ASSERT_EQ(second.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(first[i]["loss"], second[i]["loss"]);
}

TEST(Train, AUsersConfigurationIsNeverReplaced) {
  const Scratch scratch;
  write_tiny(scratch);
  fs::create_directory(scratch.path("run"));
  const std::string own = scratch.read("tiny.yaml") + "# precious\n";
  scratch.write("run/config.yaml", own);
  const std::string steps = " --set train.steps=1";
  for (const std::string config : {"run/config.yaml", "tiny.yaml"}) {
    for (const auto& environment :
         {std::map<std::string, std::string>{}, environment_of_rank_0(1)}) {
      const Finished refused = run_program(scratch, "train " + config + steps, environment);
      EXPECT_EQ(refused.exit_code, 2) << refused.output;
      EXPECT_NE(refused.output.find("output.dir: run/config.yaml is not of a run, and this run "
                                    "would write its own over it; rename that file, or set "
                                    "output.dir to another folder"),
                std::string::npos)
          << refused.output;
      EXPECT_EQ(scratch.read("run/config.yaml"), own);
      EXPECT_FALSE(fs::exists(scratch.path("run/plan.json")));
    }
  }
  // The file of a run repeats the run in its own folder.
  fs::remove(scratch.path("run/config.yaml"));
  ASSERT_EQ(run_program(scratch, "train tiny.yaml" + steps).exit_code, 0);
  for (const std::string resume : {"auto", "never"}) {
    const Finished again =
        run_program(scratch, "train run/config.yaml --resume " + resume + " --set train.steps=2");
    EXPECT_EQ(again.exit_code, 0) << again.output;
  }
}

// Bytes a parameter that live as long as the run, from the allocator: what ZeRO promises for two
// ranks, in fp32 (parameters 4, gradients 4, moments 8) and in bf16 (2 + 4 + 8, and 2 for the lower
// half of master weights).
TEST(Train, EachStageHoldsWhatItPromises) {
  const Scratch scratch;
  write_tiny(scratch);
  // Wide and shallow in tokens, so that states are nearly all there is.
  const std::string shape =
      " --set model.hidden=256 --set model.layers=12 --set model.seq=16 --set train.micro_batch=1"
      " --set train.steps=3 --set train.eval_steps=0 --set zero.bucket_bytes=1MiB";
  const double parameters = 12 * (12.0 * 256 * 256 + 13 * 256) + 257 * 256;
  // At most two gathered blocks and two blocks of gradients live beside the shards.
  const double block = 12.0 * 256 * 256 * 4 / parameters;
  const struct {
    const char* dtype;
    int stage;
    double states;  // bytes a parameter on two ranks
    double moving;  // bytes a parameter that come and go
  } rows[] = {{"fp32", 0, 16, 0},        {"fp32", 1, 12, 0},       {"fp32", 2, 10, 3 * block},
              {"fp32", 3, 8, 5 * block}, {"bf16", 0, 16, block},   {"bf16", 1, 11, block},
              {"bf16", 2, 9, 3 * block}, {"bf16", 3, 8, 5 * block}};
  double before = 0;
  for (const auto& row : rows) {
    const std::string out = std::string(row.dtype) + std::to_string(row.stage);
    const Finished run = run_program(
        scratch, "train tiny.yaml --set zero.stage=" + std::to_string(row.stage) +
                     " --set train.dtype=" + row.dtype + " --set output.dir=" + out + shape);
    ASSERT_EQ(run.exit_code, 0) << run.output;
    const double peak = scratch.metrics(out).back()["memory"]["device_peak"];
    const double per_parameter = peak / parameters;
    std::printf("%s stage %d: %.2f bytes a parameter at the peak (states %.1f)\n", row.dtype,
                row.stage, per_parameter, row.states);
    EXPECT_GE(per_parameter, row.states) << out;
    EXPECT_LE(per_parameter, row.states + row.moving + 1.2) << out;
    if (row.stage > 0) {
      EXPECT_LT(peak, before) << out;
    }
    before = peak;
  }
}

TEST(Train, DryRunStartsNothing) {
  const Scratch scratch;
  write_tiny(scratch);
  const Finished run = run_program(scratch, "train tiny.yaml --dry-run");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_NE(run.output.find("peak"), std::string::npos);
  EXPECT_NE(run.output.find("\nsaves after the last step: "), std::string::npos) << run.output;
  EXPECT_NE(run.output.find(" on the disk, in run/checkpoints"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("\n  compute "), std::string::npos) << run.output;
  EXPECT_TRUE(run.output.ends_with("\nfits\n")) << run.output;
  const Finished deep = run_program(scratch, "train tiny.yaml --dry-run --set model.layers=300");
  EXPECT_EQ(deep.exit_code, 0);
  EXPECT_LE(deep.lines().size(), 60U);
  EXPECT_NE(deep.output.find("the step's operations are not drawn: "), std::string::npos)
      << deep.output;
  EXPECT_TRUE(deep.output.ends_with("\nfits\n")) << deep.output;
  EXPECT_FALSE(std::filesystem::exists(scratch.path("run")));
  EXPECT_FALSE(std::filesystem::exists(scratch.path(".cache")));
  EXPECT_NE(run.output.find("1 file of text"), std::string::npos) << run.output;
  const Finished none =
      run_program(scratch, "train tiny.yaml --dry-run --set data.text=[none.txt]");
  EXPECT_EQ(none.exit_code, 4);
  EXPECT_NE(none.output.find("no file matches 'none.txt'"), std::string::npos) << none.output;
}

TEST(Usage, NamesACommandThatIsNotThere) {
  const Scratch scratch;
  const auto said = [&](const std::string& arguments) {
    const Finished run = run_program(scratch, arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments;
    return run.output;
  };
  EXPECT_EQ(said("trian tiny.yaml"),
            "sluice: there is no command 'trian'; did you mean train? sluice --help lists them\n");
  EXPECT_EQ(said("checkpoint verfy ckpt"),
            "sluice checkpoint: there is no command 'verfy'; did you mean verify? sluice "
            "checkpoint --help lists them\n");
  EXPECT_EQ(said("frobnicate"),
            "sluice: there is no command 'frobnicate'; sluice --help lists them\n");
  EXPECT_EQ(said("export run"),
            "sluice: there is no command 'export'; did you mean sluice checkpoint export? sluice "
            "--help lists them\n");
}

TEST(Usage, NamesOptionsThatAreNotThereInTheirOrder) {
  const Scratch scratch;
  const auto said = [&](const std::string& arguments) {
    const Finished run = run_program(scratch, arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments;
    return run.output;
  };
  const auto no_option = [](const std::string& command, const std::string& rest) {
    return command + ": there is no option " + rest + command + " --help lists them\n";
  };
  const std::string train = "sluice train";
  EXPECT_EQ(said("train x.yaml --num_gpus 4"),
            no_option(train, "'--num_gpus'; did you mean --nproc? "));
  EXPECT_EQ(said("train x.yaml --nproc-per-node=4 --learning_rate 1e-4 --frobnicate"),
            no_option(train, "'--nproc-per-node=4'; did you mean --nproc? ") +
                no_option(train, "'--learning_rate'; did you mean --set optimizer.lr=VALUE? ") +
                no_option(train, "'--frobnicate'; "));
  // The unknown option, not the configuration that it swallowed.
  EXPECT_EQ(said("train --conifg=x.yaml --dryrun"),
            no_option(train, "'--conifg=x.yaml'; ") +
                no_option(train, "'--dryrun'; did you mean --dry-run? "));
  EXPECT_EQ(said("data dedupe a.jsonl --text-key content"),
            no_option("sluice data dedupe", "'--text-key'; did you mean --json-key? "));
  EXPECT_EQ(
      said("train x.yaml y.yaml z.yaml"),
      "sluice train: no place for the argument 'y.yaml'; sluice train --help shows the "
      "arguments\nsluice train: no place for the argument 'z.yaml'; sluice train --help shows "
      "the arguments\n");
  EXPECT_EQ(run_program(scratch, "train --help --frobnicate").exit_code, 0);
}

// Those that read checkpoints: Trained.OutputThatDoesNotArriveIsAnError.
TEST(Usage, OutputThatDoesNotArriveIsAnErrorOfEachCommand) {
  const Scratch scratch;
  write_tiny(scratch);
  for (const std::string command :
       {"schema", "explain train.clip", "--help", "plan --help", "plan tiny.yaml",
        "plan tiny.yaml --json", "train tiny.yaml --dry-run", "data inspect tiny.yaml",
        "tokenizer encode text.txt", "tokenizer train text.txt --vocab-size 260 -o vocabulary",
        "bench adam --elems 100K --rounds 1",
        "bench comm --bytes 64KiB --transports local --rounds 1"}) {
    const Finished done = run_program(scratch, command + " 2>&1 >/dev/full; exit $?");
    EXPECT_EQ(done.exit_code, 4) << command;
    const std::string message =
        "sluice: cannot write all of the output: the disk behind standard output is full or "
        "failed\n";
    EXPECT_TRUE(done.output.ends_with(message)) << command << "\n" << done.output;
    EXPECT_EQ(done.output.find("cannot write"), done.output.rfind("cannot write")) << done.output;
  }
}

// The size limit of files stands in for the disk.
TEST(Train, AFullDiskAtTheStartLeavesTheFilesOfTheRunBefore) {
  const Scratch scratch;
  write_tiny(scratch);
  ASSERT_EQ(run_program(scratch, "train tiny.yaml --set train.steps=1").exit_code, 0);
  const std::string before = scratch.read("run/config.yaml");
  rlimit former{};
  ::getrlimit(RLIMIT_FSIZE, &former);
  const rlimit tight{.rlim_cur = 100, .rlim_max = former.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &tight);
  const Finished refused = run_program(scratch, "train tiny.yaml --set train.steps=2");
  ::setrlimit(RLIMIT_FSIZE, &former);
  EXPECT_EQ(refused.exit_code, 4) << refused.output;
  EXPECT_EQ(scratch.read("run/config.yaml"), before);
}

TEST(Train, JoinsAJobThatTheEnvironmentDescribes) {
  const Scratch scratch;
  write_tiny(scratch);
  const Finished run =
      run_program(scratch, "train tiny.yaml --set train.steps=2", environment_of_rank_0(1));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("data: 2 steps of 2 samples make "), std::string::npos) << run.output;
  EXPECT_EQ(scratch.metrics("run").size(), 2U);
  EXPECT_FALSE(scratch.read("run/config.yaml").empty());
}

}  // namespace
}  // namespace sluice::testing
