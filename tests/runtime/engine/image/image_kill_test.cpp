// SIGKILL at transfers, flushes and calls into the file system of a whole run that keeps an image
// (offload.image): the next run goes on from it, no further back than the step before the last one
// that was reported, with the bits of one that was never killed.
#include <cstdio>
#include <filesystem>
#include <string>

#include "tests/runtime/engine/killed_runs.hpp"
#include "tests/slow_tests.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 10;
constexpr int kNever = 1000;

struct Kind {
  const char* name;
  bool speculates;
  bool on_nvme;  // parameters too
  int every;     // steps between checkpoints
  int stage;
  int dp = 2, tensor = 1, pipeline = 1;
  PipelineSchedule schedule = PipelineSchedule::k1f1b;
  int rarer = 1;  // killed so much, where a run has more transfers and takes longer
};

class KilledImage : public KilledRuns, public ::testing::WithParamInterface<Kind> {
 protected:
  void SetUp() override {
    const Kind& kind = GetParam();
    EngineOptions& engine = run_.engine;
    engine = engine_of_two(kSteps);
    engine.model.layers = 2;
    engine.model.hidden = 32;
    engine.train.eval_every = 4;
    engine.train.clip = 0;
    engine.dp = kind.dp;
    engine.parallel.tensor = kind.tensor;
    engine.parallel.pipeline = kind.pipeline;
    engine.parallel.schedule = kind.schedule;
    engine.train.global_batch = kind.dp * kind.pipeline * engine.train.micro_batch;
    engine.zero.stage = kind.stage;
    if (!kind.on_nvme) engine.train.dtype = DType::kBFloat16;
    engine.offload.optimizer = Tier::kNvme;
    if (kind.on_nvme) engine.offload.parameters = Tier::kNvme;
    engine.offload.chunk_bytes = 16 * 1024;
    engine.offload.chunks = 2;
    engine.offload.image = true;
    if (kind.speculates) engine.offload.speculate = Speculation::kAuto;
    run_.every = kind.every;
    run_whole();
  }

  int from_image = 0;

 private:
  void begin_anew() override {
    fs::remove_all(runs_.path("run"));
    fs::remove_all(runs_.path("swap-run"));
  }

  void ended(bool killed) override {
    if (!killed) return;
    const std::int64_t reported = std::ssize(runs_.curve(runs_.path("run")));
    const std::string log = go_on();
    const std::string words = "going on with step ";
    const std::size_t at = log.find(words);
    if (at == std::string::npos) {
      const bool finished = log.find("the run is finished") != std::string::npos;
      EXPECT_TRUE(finished || reported == 0) << reported << "\n" << log;
      return;
    }
    // What is reported of step n comes after n - 1 was committed.
    EXPECT_GE(std::stoll(log.substr(at + words.size())), reported) << log;
    from_image += log.find("resumed from the image") != std::string::npos ? 1 : 0;
  }
};

TEST_P(KilledImage, GoesOnFromTheLastCommittedStep) {
  const int rarer = GetParam().rarer;
  const int stride = (slow_tests() ? 5 : 171) * rarer;
  const int writes = kill_at("nvme.write", 7 * rarer, stride);
  const int flushes = kill_at("nvme.sync", 2 * rarer, (slow_tests() ? 1 : 11) * rarer);
  const int reads = kill_at("nvme.read", 11 * rarer, slow_tests() ? stride : 2 * stride);
  const int steps = kill_at("engine.step", 5, (slow_tests() ? 1 : 9) * rarer);
  EXPECT_GT(writes, rarer > 1 ? 0 : 1);
  EXPECT_GT(flushes, rarer > 1 ? 0 : 1);
  EXPECT_GT(from_image, (writes + flushes + reads + steps) / 3);
  std::printf("killed at %d writes, %d flushes, %d reads, %d steps; %d went on from the image\n",
              writes, flushes, reads, steps, from_image);
}

// While the last checkpoint is written, and what comes after it.
TEST_P(KilledImage, GoesOnWhereverACheckpointStood) {
  const int calls = kill_at("checkpoint.call", 3, (slow_tests() ? 1 : 37) * GetParam().rarer);
  EXPECT_GT(calls, 0);
  std::printf("killed at %d calls; %d went on from the image\n", calls, from_image);
}

INSTANTIATE_TEST_SUITE_P(
    How, KilledImage,
    ::testing::Values(
        Kind{"Plain", false, false, kNever, 1}, Kind{"Early", true, false, 6, 3},
        Kind{"EarlyOnNvme", true, true, kNever, 3},
        Kind{"TensorEarly", true, false, kNever, 3, 1, 2, 1, PipelineSchedule::k1f1b, 3},
        Kind{"Pipeline", false, true, 6, 3, 1, 1, 2, PipelineSchedule::kZeroBubble, 3},
        Kind{"Mesh", false, false, kNever, 1, 1, 2, 2, PipelineSchedule::k1f1b, 6}),
    [](const auto& how) { return std::string(how.param.name); });

}  // namespace
}  // namespace sluice::testing
