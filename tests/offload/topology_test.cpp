#include "offload/topology.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
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
  EXPECT_FALSE(topology.description().empty());
}

TEST(Topology, SharesCoverAllCores) {
  const Topology topology;
  for (const int ranks : {1, 2, 3, topology.cores(), topology.cores() + 1}) {
    std::set<int> seen;
    std::size_t sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<int> share = topology.share_of(rank, ranks);
      EXPECT_FALSE(share.empty());
      seen.insert(share.begin(), share.end());
      sum += share.size();
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(topology.cores()));
    if (ranks <= topology.cores()) {
      EXPECT_EQ(sum, seen.size());
    }
  }
}

TEST(Topology, BindsAThreadToItsShare) {
  const Topology topology;
  const std::vector<int> share = topology.share_of(topology.cores() - 1, topology.cores());
  std::thread([&] {
    if (!topology.bind_thread(share)) return;  // refused, as it may be
    EXPECT_EQ(::sched_getcpu(), share.front());
  }).join();
}

TEST(Topology, MemoryGoesToANode) {
  const Topology topology;
  const int core = topology.share_of(0, topology.cores()).front();
  const auto& nodes = topology.nodes();
  const auto near = std::find_if(nodes.begin(), nodes.end(), [&](const MemoryNode& node) {
    return std::find(node.cores.begin(), node.cores.end(), core) != node.cores.end();
  });
  ASSERT_NE(near, nodes.end());
  const auto node = static_cast<int>(near - nodes.begin());
  HostPool pool;
  const HostBlock block = pool.allocate("x", 1 << 20);
  (void)topology.prefer_memory(block.data(), block.bytes(), {node});  // advice
  block.data()[0] = std::byte{1};
}

}  // namespace
}  // namespace sluice
