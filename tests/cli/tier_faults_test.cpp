// A drive that fails under a run, by failpoints below the store (offload/README.md): every fault
// ends as promised, says where it was, leaves no process and no file, and never trains on wrong
// bytes.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/cli/tier_runs.hpp"
#include "tests/slow_tests.hpp"

namespace sluice::testing {
namespace {

constexpr double kBoundSeconds = 25;
const std::string kRun = " --set train.steps=5 --set launch.timeout=12s";

struct Fault {
  const char* name;
  const char* failpoints;
  int exit_code;
  std::vector<const char*> last_lines = {};  // what they hold, where the run cannot go on
  bool slow = false;                         // only with SLUICE_SLOW_TESTS
};

class DriveFault : public ::testing::TestWithParam<Fault> {
 protected:
  // Of a drive without faults.
  static void SetUpTestSuite() {
    const Scratch scratch;
    write_tiny(scratch);
    const Finished run = run_program(scratch, "train tiny.yaml" + kRun + everything_on("nvme"));
    ASSERT_EQ(run.exit_code, 0) << run.output;
    healthy_ = scratch.curve("run");
  }
  static std::string healthy_;
};
std::string DriveFault::healthy_;

TEST_P(DriveFault, EndsAsPromised) {
  const Fault& fault = GetParam();
  if (fault.slow && !slow_tests()) {
    GTEST_SKIP() << "runs with SLUICE_SLOW_TESTS=1";
  }
  const Scratch scratch;
  write_tiny(scratch);
  const Finished run =
      run_program(scratch, "train tiny.yaml --set output.dir={}/run" + kRun + everything_on("nvme"),
                  {{"SLUICE_FAILPOINTS", fault.failpoints}});
  EXPECT_EQ(run.exit_code, fault.exit_code) << run.output;
  EXPECT_LT(run.seconds, kBoundSeconds);
  EXPECT_EQ(processes_with(scratch.path()), 0) << "a process was left";
  EXPECT_EQ(files_in(scratch, "swap"), std::vector<std::string>());
  if (fault.exit_code == 0) {
    EXPECT_EQ(scratch.curve("run"), healthy_);
  }
  const std::vector<std::string> lines = run.lines();
  std::string tail;
  for (std::size_t i = lines.size() > 3 ? lines.size() - 3 : 0; i < lines.size(); ++i) {
    tail += lines[i] + "\n";
  }
  for (const char* said : fault.last_lines) {
    EXPECT_NE(tail.find(said), std::string::npos) << said << "\n" << run.output;
  }
}

// The initial weights are written by transfers 1 to 9 or so; reads begin with the first step.
INSTANTIATE_TEST_SUITE_P(
    Table, DriveFault,
    ::testing::Values(
        Fault{"ReadFailsOnce",
              "nvme.read@40:rank=1:error",
              4,
              {"rank 1 on ", ": reading ", "rank-00001.swap at offset ", "(errno 5)"}},
        Fault{"ReadFailsForEver",
              "nvme.read:error",
              4,
              {": reading ", ".swap at offset ", "(errno 5)"},
              true},
        Fault{"WriteFailsOnce",
              "nvme.write@40:rank=0:error",
              4,
              {"rank 0 on ", ": writing ", "rank-00000.swap at offset ", "(errno 5)"}},
        Fault{"WriteFailsForEver",
              "nvme.write:error",
              4,
              {": writing ", ".swap at offset ", "(errno 5)"},
              true},
        Fault{"NoSpaceLater",
              "nvme.write.enospc@30:rank=1:error",
              4,
              {"rank 1 on ", ": writing ", "rank-00001.swap at offset ", "(errno 28)"}},
        Fault{"NoSpaceAtTheStart",
              "nvme.fallocate:rank=1:error",
              4,
              {"rank 1 on ", "cannot reserve ", "rank-00001.swap", "No space left on device"}},
        Fault{"ABitFlipsInARead",
              "nvme.read@30:rank=1:nan",
              4,
              {"rank 1 on ", ": reading ", "rank-00001.swap at offset ",
               "its checksum is not that of what was written"}},
        Fault{"ABitFlipsInAWrite",
              "nvme.write@30:rank=0:nan",
              4,
              {"rank 0 on ", ": reading ", "rank-00000.swap at offset ",
               "its checksum is not that of what was written"}},
        Fault{"AnAnswerIsLost",
              "nvme.read.lost@33:rank=1:error",
              4,
              {"rank 1 on ", "no answer from swap/rank-00001.swap for 3 s"}},
        Fault{"TheFileCannotBeMade",
              "nvme.open:rank=1:error",
              4,
              {"rank 1 on ", "cannot create swap/rank-00001.swap", "Input/output error"},
              true},
        Fault{"AllThatIsPassedOver",
              "nvme.read.short@7:error;nvme.write.short@25:error;nvme.read.again@9:error;"
              "nvme.write.again@27:error;nvme.read.intr@12:error;nvme.write.intr@29:error;"
              "nvme.read@30:delay=100;nvme.write@33:delay=100",
              0},
        Fault{"NoIoUringAndNoDirectTransfers", "nvme.uring_setup:error;nvme.open.direct:error", 0},
        Fault{"ShortReads", "nvme.read.short@7:error;nvme.read.short@8:error", 0, {}, true},
        Fault{"ShortWrites", "nvme.write.short@25:error;nvme.write.short@3:error", 0, {}, true},
        Fault{"TryAgain", "nvme.read.again@9:error;nvme.write.again@25:error", 0, {}, true},
        Fault{"Interrupted", "nvme.read.intr@9:error;nvme.write.intr@25:error", 0, {}, true},
        Fault{"SlowTransfers", "nvme.read:rank=1:delay=5", 0, {}, true}),
    [](const ::testing::TestParamInfo<Fault>& info) { return std::string(info.param.name); });

// The launcher's own files, and the ranks' swap files: each is an error with the file's name.
TEST(DriveLimit, AFileBeyondTheLimitOnSizesIsAnError) {
  struct Case {
    rlim_t bytes;
    const char* said;
  };
  for (const Case& limited : {Case{0, "sluice: "}, Case{640 << 10, "rank-00000.swap"}}) {
    const Scratch scratch;
    write_tiny(scratch);
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small{limited.bytes, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const Finished run =
        run_program(scratch, "train tiny.yaml --set launch.nproc=1" + kRun + everything_on("nvme"));
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(run.exit_code, 4) << run.output;
    EXPECT_NE(run.output.find("File too large"), std::string::npos) << run.output;
    EXPECT_NE(run.output.find(limited.said), std::string::npos) << run.output;
    EXPECT_EQ(files_in(scratch, "swap"), std::vector<std::string>());
  }
}

}  // namespace
}  // namespace sluice::testing
