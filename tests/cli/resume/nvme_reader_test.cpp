// `generate` and `eval` of a run that has its parameters on NVMe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <future>

#include "tests/cli/resume_runs.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class NvmeReader : public Resume {
 protected:
  // Both commands refuse the folder for `why`. What they recommend works.
  void expect_remedy(const std::string& why, const std::string& checkpoint) {
    for (const std::string command :
         {"generate --prompt a --max-tokens 2", "eval run/config.yaml"}) {
      SCOPED_TRACE(command);
      const std::string read = command + " --checkpoint " + checkpoint;
      const Finished refused = run_program(scratch_, read);
      EXPECT_NE(refused.exit_code, 0);
      EXPECT_THAT(refused.output, HasSubstr(why));
      EXPECT_THAT(refused.output, HasSubstr("--set offload.parameters=device (or host)"));
      EXPECT_THAT(refused.output, Not(HasSubstr("remove")));
      const Finished done = run_program(scratch_, read + " --set offload.parameters=device");
      EXPECT_EQ(done.exit_code, 0) << done.output;
    }
  }
};

TEST_F(NvmeReader, OfALiveRunIsToldToReadWithoutTheFolder) {
  auto run = std::async(std::launch::async, [&] {
    return train("run",
                 everything_on("nvme") + " --set train.steps=100000 --set checkpoint.every=3",
                 {{"SLUICE_FAILPOINTS", "engine.step:delay=200"}});
  });
  const Finished stopped = during(
      std::move(run), [&] { return !complete("run").empty(); },
      [&] {
        expect_remedy("NVMe directory swap is in use by run", "run");
        signal_launcher(scratch_, "run", SIGTERM);
      });
  EXPECT_EQ(stopped.exit_code, 130) << stopped.output;
}

TEST_F(NvmeReader, OfAFolderWithAnImageOrNoneIsToldToReadWithoutIt) {
  ASSERT_EQ(train("run", everything_on("nvme")).exit_code, 0);
  ASSERT_EQ(train("other", everything_on("nvme") + " --set offload.image=true",
                  {{"SLUICE_FAILPOINTS", "engine.step@4:kill"}})
                .exit_code,
            5);
  expect_remedy("is part of an image that a training run can go on from", "run");
  fs::remove_all(scratch_.path("swap"));
  scratch_.write("swap", "a file");
  expect_remedy("is a file", "run");
}

}  // namespace
}  // namespace sluice::testing
