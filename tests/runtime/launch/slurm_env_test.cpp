#include "runtime/launch/slurm_env.hpp"

#include <gmock/gmock.h>

#include <map>

#include "base/error.hpp"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

GetEnvironment from(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found != variables.end() ? found->second.c_str() : nullptr;
  };
}

// The sixth of 2 + 2 + 2 + 1 tasks on four nodes.
const Variables kTask{{"SLURM_PROCID", "5"},     {"SLURM_NTASKS", "7"},
                      {"SLURM_LOCALID", "1"},    {"SLURM_NODELIST", "node[03-05,9]"},
                      {"SLURM_NODEID", "2"},     {"SLURM_TASKS_PER_NODE", "2(x3),1"},
                      {"SLURM_JOB_ID", "40123"}, {"SLURM_STEP_ID", "1"}};

TEST(Slurm, HostLists) {
  EXPECT_THAT(expand_host_list("node1"), ElementsAre("node1"));
  EXPECT_THAT(expand_host_list("node[03-05,9],login"),
              ElementsAre("node03", "node04", "node05", "node9", "login"));
  EXPECT_THAT(expand_host_list("r[1-2]n[08-10]-ib"),
              ElementsAre("r1n08-ib", "r1n09-ib", "r1n10-ib", "r2n08-ib", "r2n09-ib", "r2n10-ib"));
  EXPECT_THAT(expand_host_list("a-b-[1],c.d"), ElementsAre("a-b-1", "c.d"));
}

TEST(Slurm, HostListsThatAreNone) {
  for (const char* list : {"", ",a", "a,", "node[1-2", "node1]", "node[]", "node[2-1]", "node[a-b]",
                           "node[1-]", "node[1,,2]", "a b", "n[0-99999999]"}) {
    EXPECT_THROW((void)expand_host_list(list), ConfigError) << list;
  }
}

TEST(Slurm, TaskCounts) {
  EXPECT_THAT(expand_task_counts("4"), ElementsAre(4));
  EXPECT_THAT(expand_task_counts("4(x2),1"), ElementsAre(4, 4, 1));
  for (const char* counts : {"", "4(x", "4(x0)", "x2", "4(x2),", "0", "4(2)", "4()"}) {
    EXPECT_THROW((void)expand_task_counts(counts), ConfigError) << counts;
  }
}

TEST(Slurm, ATaskIsARank) {
  const auto rank = slurm_rank_environment(from(kTask));
  ASSERT_TRUE(rank);
  EXPECT_EQ(rank->rank, 5);
  EXPECT_EQ(rank->world_size, 7);
  EXPECT_EQ(rank->local_rank, 1);
  EXPECT_EQ(rank->local_world_size, 2);
  EXPECT_EQ(rank->master_addr, "node03");
  EXPECT_EQ(rank->master_port, 10000 + (40123 + 1) % 20000);
  EXPECT_EQ(rank_environment(from(kTask))->rank, 5);
}

TEST(Slurm, WhatIsGivenGoesBefore) {
  Variables task = kTask;
  task["MASTER_ADDR"] = "10.0.0.1";
  task["MASTER_PORT"] = "29500";
  const auto rank = slurm_rank_environment(from(task));
  EXPECT_EQ(rank->master_addr, "10.0.0.1");
  EXPECT_EQ(rank->master_port, 29500);
  task.insert({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}});
  EXPECT_EQ(rank_environment(from(task))->world_size, 2);  // torchrun within srun
}

TEST(Slurm, RanksOfTheHostWithoutTheirCounts) {
  Variables task = kTask;
  task.erase("SLURM_TASKS_PER_NODE");
  task["SLURM_NTASKS_PER_NODE"] = "2";
  EXPECT_EQ(slurm_rank_environment(from(task))->local_world_size, 2);
  task.erase("SLURM_NTASKS_PER_NODE");
  task["SLURM_NTASKS"] = "8";
  EXPECT_EQ(slurm_rank_environment(from(task))->local_world_size, 2);
}

TEST(Slurm, ABatchScriptOrAShellIsNoTask) {
  Variables script = kTask;
  script.erase("SLURM_STEP_ID");
  EXPECT_TRUE(slurm_rank_environment(from(script)));
  script["ENVIRONMENT"] = "BATCH";
  EXPECT_FALSE(slurm_rank_environment(from(script)));
  script["SLURM_STEP_ID"] = "0";  // srun within it
  EXPECT_TRUE(slurm_rank_environment(from(script)));
  Variables shell = kTask;
  shell["SLURM_STEP_ID"] = "4294967290";
  EXPECT_FALSE(slurm_rank_environment(from(shell)));
  EXPECT_FALSE(slurm_rank_environment(from({{"SLURM_JOB_ID", "7"}})));
}

struct Wrong {
  const char* name;
  const char* value;  // nullptr: unset
  const char* said;
};

class WrongTask : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongTask, IsRefusedByName) {
  const auto& [name, value, said] = GetParam();
  Variables task = kTask;
  task.erase(name);
  if (value != nullptr) task[name] = value;
  try {
    (void)slurm_rank_environment(from(task));
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr(said));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, WrongTask,
    ::testing::Values(Wrong{"SLURM_NTASKS", nullptr, "SLURM_NTASKS is not set"},
                      Wrong{"SLURM_NTASKS", "5", "SLURM_PROCID=5 must be below SLURM_NTASKS=5"},
                      Wrong{"SLURM_PROCID", "one", "SLURM_PROCID='one' must be a number"},
                      Wrong{"SLURM_LOCALID", nullptr, "SLURM_LOCALID is not set"},
                      Wrong{"SLURM_LOCALID", "2", "must be below the tasks of this node=2"},
                      Wrong{"SLURM_NODELIST", nullptr, "SLURM_NODELIST is not set"},
                      Wrong{"SLURM_NODELIST", "node[3", "is not a list of hosts"},
                      Wrong{"SLURM_NODELIST", "node1", "SLURM_NODELIST names one node"},
                      Wrong{"SLURM_NODEID", "4", "is not a node of the 4"},
                      Wrong{"SLURM_NODEID", nullptr, "not the same number on each of 4 nodes"},
                      Wrong{"SLURM_JOB_ID", nullptr, "set MASTER_PORT"},
                      Wrong{"MASTER_PORT", "70000", "MASTER_PORT='70000'"},
                      Wrong{"SLURM_TASKS_PER_NODE", "2,2,9", "more than SLURM_NTASKS=7"}));

}  // namespace
}  // namespace sluice
