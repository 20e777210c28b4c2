// SIGKILL at every call into the file system that a run makes from its resume to its last save, and
// at every transfer of its NVMe tier: each time the same folders hold a complete checkpoint, and
// the run goes on from there with the bits of one that was never killed.
#include <cstdio>
#include <filesystem>
#include <string>

#include "runtime/checkpoint/io/checkpoint_catalog.hpp"
#include "tests/runtime/engine/killed_runs.hpp"
#include "tests/slow_tests.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

class Killed : public KilledRuns {
 protected:
  // Run "base" has one checkpoint, of step `run.every`, and "whole" went on to the end unharmed.
  void prepare(const ForkedRun& run) {
    run_ = run;
    ForkedRun base = named("base");
    base.engine.schedule.decay_steps = run.engine.train.steps;
    base.engine.train.steps = run.every;
    base.engine.train.eval_steps = 0;
    const ForkedEnd first = runs_.train(base);
    ASSERT_EQ(first.exit_code, 0) << first.log;
    copy_base("whole");
    run_whole();
  }

 private:
  void begin_anew() override { copy_base("run"); }

  void ended(bool killed) override {
    const std::string saved = runs_.path("run/checkpoints");
    const NewestComplete found = newest_complete(local_file_system(), saved, Trust::kContents);
    EXPECT_TRUE(found.path) << "nothing is complete";
    for (const auto& other : found.refused) {  // without a manifest: not yet, or no longer
      EXPECT_NE(other.reason.find("never completed"), std::string::npos) << other.reason;
    }
    if (killed && found.path) expect_goes_on(*found.path);
  }

  void expect_goes_on(const std::string& from) {
    const std::string log = go_on();
    EXPECT_NE(log.find(from), std::string::npos) << from << "\n" << log;
    EXPECT_EQ(log.find("starting anew"), std::string::npos) << log;
    const bool finished = log.find("the run is finished") != std::string::npos;
    EXPECT_NE(finished, log.find("going on with step ") != std::string::npos) << log;
    if (finished) return;  // nothing is saved or removed then
    const std::string saved = runs_.path("run/checkpoints");
    EXPECT_EQ(local_file_system().list(saved).size(), 2U) << "latest, and the last";
    EXPECT_EQ(open_checkpoint(local_file_system(), saved).manifest().step, run_.engine.train.steps);
  }

  void copy_base(const std::string& to) const {
    fs::remove_all(runs_.path(to));
    fs::copy(runs_.path("base"), runs_.path(to), fs::copy_options::recursive);
  }
};

// Saves behind the steps, or at once, each of which removes the one before.
class KilledSaving : public Killed, public ::testing::WithParamInterface<const char*> {
 protected:
  ForkedRun run() const {
    const std::string how = GetParam();
    ForkedRun run{.engine = engine_of_two(8), .async = how != "AtOnce"};
    if (how == "FromNvme") {
      run.engine.zero.stage = 3;
      run.engine.offload.optimizer = Tier::kNvme;
      run.engine.offload.parameters = Tier::kNvme;
      run.engine.offload.gradients = Tier::kHost;
      run.engine.offload.chunk_bytes = 16 * 1024;
    }
    return run;
  }
};

TEST_P(KilledSaving, AtCallsIntoTheFileSystem) {
  ASSERT_NO_FATAL_FAILURE(prepare(run()));
  const int killed =
      slow_tests() ? kill_at("checkpoint.call", 1, 1) : kill_at("checkpoint.call", 11, 41);
  EXPECT_GT(killed, slow_tests() ? 120 : 2);
  std::printf("killed at %d calls\n", killed);
}

INSTANTIATE_TEST_SUITE_P(How, KilledSaving, ::testing::Values("Behind", "AtOnce", "FromNvme"),
                         [](const auto& how) { return std::string(how.param); });

// In the middle of a step whose updates are made before the norm is known, and of what the store
// does between steps: the next run finds the files of the former and takes none of their bytes.
class KilledSpeculating : public Killed, public ::testing::WithParamInterface<bool> {};

TEST_P(KilledSpeculating, InTheMiddleOfAStep) {
  ForkedRun run{.engine = engine_of_two(12), .async = GetParam(), .every = 4};
  run.engine.zero.stage = 3;
  run.engine.train.clip = 0;
  run.engine.offload.optimizer = Tier::kNvme;
  run.engine.offload.chunk_bytes = 16 * 1024;
  run.engine.offload.chunks = 2;
  run.engine.offload.speculate = Speculation::kAuto;
  ASSERT_NO_FATAL_FAILURE(prepare(run));
  const int stride = slow_tests() ? 7 : 97;
  const int writes = kill_at("nvme.write", 5, stride);
  const int reads = kill_at("nvme.read", 3, stride);
  EXPECT_GT(writes, 1);
  EXPECT_GT(reads, 1);
  std::printf("killed at %d writes and %d reads\n", writes, reads);
}

INSTANTIATE_TEST_SUITE_P(How, KilledSpeculating, ::testing::Values(true, false),
                         [](const auto& how) { return how.param ? "Behind" : "AtOnce"; });

}  // namespace
}  // namespace sluice::testing
