#include "runtime/launch/binding.hpp"

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/error.hpp"
#include "runtime/launch/cpu_quota.hpp"

namespace sluice {
namespace {

std::vector<int> nodes(std::initializer_list<std::size_t> sizes) {
  std::vector<int> result;
  int node = 0;
  for (const std::size_t size : sizes) result.insert(result.end(), size, node++);
  return result;
}

// Every rank gets the same number, none shares a core.
TEST(ShareOfCores, DisjointAndEqual) {
  for (const auto& machine : {nodes({1}), nodes({7}), nodes({4, 4}), nodes({3, 5}),
                              nodes({2, 2, 2, 2}), nodes({1, 6, 2})}) {
    for (int ranks = 1; ranks <= static_cast<int>(machine.size()); ++ranks) {
      std::vector<int> owners(machine.size(), 0);
      for (int rank = 0; rank < ranks; ++rank) {
        const CoreShare share = share_of_cores(machine, rank, ranks);
        EXPECT_EQ(share.count, machine.size() / static_cast<std::size_t>(ranks));
        ASSERT_LE(share.first + share.count, machine.size());
        for (std::size_t i = 0; i < share.count; ++i) ++owners[share.first + i];
      }
      EXPECT_THAT(owners, ::testing::Each(::testing::Le(1))) << ranks;
    }
  }
}

TEST(ShareOfCores, StaysOnANode) {
  // 5 cores a node, 2 ranks each: the fifth stays idle rather than belong to a rank of both nodes.
  const auto machine = nodes({5, 5});
  const std::vector<std::size_t> expected{0, 2, 5, 7};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(share_of_cores(machine, rank, 4).first, expected[static_cast<std::size_t>(rank)]);
  }
  EXPECT_EQ(share_of_cores(nodes({4, 4, 4, 4}), 1, 2).first, 8u);
  // A small node must not slow its rank down: 8 cores for 2 ranks are 4 each.
  EXPECT_EQ(share_of_cores(nodes({2, 6}), 1, 2).first, 4u);
}

TEST(CpuQuota, Text) {
  EXPECT_EQ(parse_cpu_max("200000 100000\n"), 2.0);
  EXPECT_EQ(parse_cpu_max("50000 100000"), 0.5);
  EXPECT_EQ(parse_cpu_max("-1\n 100000\n"), std::nullopt);
  for (const char* none : {"", "max 100000", "100000", "x y", "0 100000"}) {
    EXPECT_EQ(parse_cpu_max(none), std::nullopt) << none;
  }
}

cpu_set_t own_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  return set;
}

// In a child, for the binding stays with the process.
int in_child(const std::function<bool()>& holds) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(holds() ? 0 : 1);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

TEST(Binding, BindsToWhatItSays) {
  const int allowed = [] {
    const cpu_set_t set = own_cpus();
    return CPU_COUNT(&set);
  }();
  EXPECT_EQ(in_child([allowed] {
              const Binding binding = bind_local_rank({.local_rank = 0, .local_world_size = 1});
              const cpu_set_t after = own_cpus();
              if (binding.threads < 1 || binding.threads > allowed) return false;
              if (binding.threads != threads_per_rank(1)) return false;
              if (!binding.bound) return CPU_COUNT(&after) == allowed;
              for (const int cpu : binding.cpus) {
                if (!CPU_ISSET(static_cast<std::size_t>(cpu), &after)) return false;
              }
              return CPU_COUNT(&after) == static_cast<int>(binding.cpus.size());
            }),
            0);
}

TEST(Binding, RespectsTheAffinityItWasGiven) {
  EXPECT_EQ(in_child([] {
              const cpu_set_t before = own_cpus();
              cpu_set_t one;
              CPU_ZERO(&one);
              for (std::size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
                if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
              }
              ::sched_setaffinity(0, sizeof one, &one);
              const Binding binding = bind_local_rank({.local_rank = 1, .local_world_size = 3});
              return binding.threads == 1 && !binding.bound &&
                     binding.summary == "1 compute thread, not bound: 1 core for 3 ranks";
            }),
            0);
}

TEST(Binding, MoreThreadsThanTheShareAreNotBound) {
  const Binding binding = bind_local_rank({.local_world_size = 1, .threads = 100000});
  EXPECT_EQ(binding.threads, 100000);
  EXPECT_FALSE(binding.bound);
}

TEST(Binding, RequestWithoutSense) {
  EXPECT_THROW((void)bind_local_rank({.local_rank = 2, .local_world_size = 2}), ConfigError);
  EXPECT_THROW((void)bind_local_rank({.threads = -1}), ConfigError);
}

}  // namespace
}  // namespace sluice
