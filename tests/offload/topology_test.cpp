#include "offload/topology.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <set>
#include <thread>

#include "offload/host_pool.hpp"

namespace sluice {
namespace {

TEST(Topology, KnowsTheCoresOfThisProcess) {
  const Topology topology;
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  EXPECT_EQ(topology.hardware_threads(), CPU_COUNT(&allowed));
  EXPECT_GE(topology.cores(), 1);
  EXPECT_LE(topology.cores(), topology.hardware_threads());
}

TEST(Topology, UsableCoresHaveTheUsableThreads) {
  const Topology topology;
  std::set<int> threads, nodes;
  for (const CpuCore& core : topology.usable_cores()) {
    EXPECT_FALSE(core.threads.empty());
    threads.insert(core.threads.begin(), core.threads.end());
    nodes.insert(core.node);
  }
  const std::vector<int> usable = topology.usable_threads();
  EXPECT_EQ(threads, std::set<int>(usable.begin(), usable.end()));
  for (const MemoryNode& node : topology.nodes()) nodes.erase(node.os_index);
  EXPECT_TRUE(nodes.empty());
}

TEST(Topology, BindsAThread) {
  const Topology topology;
  const int last = topology.usable_threads().back();
  std::thread([&] {
    if (!topology.bind_thread({last})) return;  // refused, as it may be
    EXPECT_EQ(::sched_getcpu(), last);
  }).join();
}

TEST(Topology, MemoryGoesToANode) {
  const Topology topology;
  const auto node = static_cast<int>(topology.nodes().size()) - 1;
  HostPool pool;
  const HostBlock block = pool.allocate("x", 1 << 20);
  (void)topology.prefer_memory(block.data(), block.bytes(), {node});  // advice
  block.data()[0] = std::byte{1};
}

}  // namespace
}  // namespace sluice
