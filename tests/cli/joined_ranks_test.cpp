// Ranks that another program starts, each with its own arguments and environment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/cli/program.hpp"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class JoinedRanks : public ::testing::Test {
 protected:
  JoinedRanks() {
    write_tiny(scratch_);
    scratch_.write("other.txt", std::string(20000, 'x') + " another text");
  }

  // Two ranks as torchrun starts them; both have `base`, rank 1 alone has `more`.
  std::vector<Finished> train(const std::string& more, const std::string& failpoint = "",
                              const std::string& base = "") const {
    auto environment = environment_of_rank_0(2);
    if (!failpoint.empty()) environment["SLUICE_FAILPOINTS"] = failpoint;
    const std::string arguments =
        "train tiny.yaml --set launch.backend=gloo --set train.steps=2 "
        "--set launch.timeout=60s " +
        base;
    std::vector<std::future<Finished>> ranks;
    for (const char* rank : {"0", "1"}) {
      environment["RANK"] = environment["LOCAL_RANK"] = rank;
      const std::string own = *rank == '1' ? arguments + more : arguments;
      ranks.push_back(std::async(std::launch::async, [this, own, environment] {
        return run_program(scratch_, own, environment);
      }));
    }
    std::vector<Finished> ended;
    for (std::future<Finished>& rank : ranks) ended.push_back(rank.get());
    return ended;
  }
  void expect_refused(const std::string& more, const std::string& cause,
                      const std::string& base = "") const {
    for (const Finished& rank : train(more, "", base)) {
      EXPECT_EQ(rank.exit_code, 2) << more << "\n" << rank.output;
      EXPECT_THAT(rank.output, HasSubstr(": the ranks differ: " + cause));
    }
    EXPECT_TRUE(scratch_.metrics("run").empty());
  }

  Scratch scratch_;
};

TEST_F(JoinedRanks, OtherConfigurationsAreRefusedByEveryRank) {
  expect_refused("--set optimizer.lr=1e-1", "rank 1 has optimizer.lr 0.1, rank 0 has ");
  expect_refused("--set train.seed=77", "rank 1 has train.seed 77, rank 0 has ");
  expect_refused("--set zero.stage=0", "rank 1 has zero.stage 0, rank 0 has ");
  expect_refused("--set model.layers=3", "rank 1 has model.layers 3, rank 0 has 2; start every");
  // Patterns and names are no paths.
  expect_refused("--set train.freeze=[h.1]",
                 R"(rank 1 has train.freeze ["h.1"], rank 0 has ["h.0"]; start every)",
                 "--set train.freeze=[h.0] ");
  expect_refused("--set data.json_key=body",
                 R"(rank 1 has data.json_key "body", rank 0 has "text")");
  expect_refused("--set data.text=other.txt", "rank 1 has data with the fingerprint ");
}

TEST_F(JoinedRanks, AnotherResumeIsNamedAsTheArgument) {
  for (const Finished& rank : train("--resume auto")) {
    EXPECT_EQ(rank.exit_code, 2) << rank.output;
    EXPECT_THAT(
        rank.output,
        HasSubstr("--resume: the ranks differ: rank 1 has --resume auto, rank 0 has never"));
    EXPECT_THAT(rank.output, Not(HasSubstr("tiny.yaml: the ranks differ")));
  }
}

// Each host may have its own folders and its own share of cores.
TEST_F(JoinedRanks, PathsAndThreadsMayDiffer) {
  for (const Finished& rank : train("--set output.dir=there --set launch.threads=1")) {
    EXPECT_EQ(rank.exit_code, 0) << rank.output;
    EXPECT_THAT(rank.output, Not(HasSubstr("the ranks differ")));
  }
  EXPECT_EQ(scratch_.metrics("run").size(), 2U);
}

TEST_F(JoinedRanks, ARankWhosePeerFailsPointsToThePeersOutput) {
  const auto ranks = train("", "data.read:rank=1:error");
  EXPECT_NE(ranks[0].exit_code, 0);
  EXPECT_THAT(ranks[0].output, HasSubstr("; the output of that rank of the group has the cause"));
  EXPECT_THAT(ranks[1].output, HasSubstr("data.read"));
}

}  // namespace
}  // namespace sluice::testing
