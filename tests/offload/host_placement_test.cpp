#include "offload/host_placement.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "kernels/cpu/parallel.hpp"

namespace sluice {
namespace {

using Threads = std::vector<int>;

Threads all_of(const Topology& topology) {
  Threads threads;
  for (const MemoryNode& node : topology.nodes()) {
    threads.insert(threads.end(), node.threads.begin(), node.threads.end());
  }
  return threads;
}

// The nodes that hold these hardware threads.
std::set<int> nodes_of(const Topology& topology, const Threads& threads) {
  std::set<int> found;
  for (std::size_t n = 0; n < topology.nodes().size(); ++n) {
    for (const int thread : topology.nodes()[n].threads) {
      if (std::find(threads.begin(), threads.end(), thread) != threads.end()) {
        found.insert(static_cast<int>(n));
      }
    }
  }
  return found;
}

class TwoNodes : public ::testing::Test {
 protected:
  const Topology topology_{"numa:2 core:8 pu:2"};
};

TEST_F(TwoNodes, AreReadAsTheyAreDescribed) {
  ASSERT_EQ(topology_.nodes().size(), 2U);
  EXPECT_EQ(topology_.cores(), 16);
  EXPECT_EQ(topology_.hardware_threads(), 32);
  for (const MemoryNode& node : topology_.nodes()) {
    EXPECT_EQ(node.cores.size(), 8U);
    EXPECT_EQ(node.threads.size(), 16U);
  }
}

// Not bound by the launcher: each of four ranks keeps to its node.
TEST_F(TwoNodes, FourRanksOnAllCpusKeepToTheirNodes) {
  for (int rank = 0; rank < 4; ++rank) {
    const HostPlacement placed = place_host(
        topology_, {.usable = all_of(topology_), .threads = 4, .sharer = rank, .sharers = 4});
    const int node = rank / 2;
    EXPECT_EQ(placed.nodes, std::vector<int>{node});
    ASSERT_EQ(placed.threads.size(), 4U);
    for (const Threads& threads : placed.threads) {
      EXPECT_EQ(threads, topology_.nodes()[static_cast<std::size_t>(node)].threads);
    }
  }
}

// As the launcher binds four ranks: four cores of one node each. Only pages need a word.
TEST_F(TwoNodes, ARankBoundToANodeStaysAsItIs) {
  const Threads& node = topology_.nodes()[1].threads;
  const HostPlacement placed =
      place_host(topology_, {.usable = {node.begin() + 8, node.end()}, .threads = 4});
  EXPECT_TRUE(placed.threads.empty());
  EXPECT_EQ(placed.nodes, std::vector<int>{1});
  EXPECT_EQ(describe(topology_, placed), "host pages on memory node 1");
}

TEST_F(TwoNodes, ARankOfBothHasHalfItsThreadsOnEach) {
  const HostPlacement placed = place_host(topology_, {.usable = all_of(topology_), .threads = 16});
  EXPECT_EQ(placed.nodes, (std::vector<int>{0, 1}));
  ASSERT_EQ(placed.threads.size(), 16U);
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(nodes_of(topology_, placed.threads[i]), std::set<int>{i < 8 ? 0 : 1}) << i;
  }
  EXPECT_EQ(describe(topology_, placed),
            "compute threads and host pages on memory nodes 0, 1 in turns");
}

// Three quarters of what the process may use are on the first node, so are its threads.
TEST_F(TwoNodes, UnequalPartsTakeUnequalNumbers) {
  Threads usable = topology_.nodes()[0].threads;
  usable.resize(12);
  const Threads& second = topology_.nodes()[1].threads;
  usable.insert(usable.end(), second.begin(), second.begin() + 4);
  const HostPlacement placed = place_host(topology_, {.usable = usable, .threads = 4});
  std::map<int, int> count;
  for (const Threads& threads : placed.threads) {
    ++count[*nodes_of(topology_, threads).begin()];
    for (const int thread : threads) {
      EXPECT_NE(std::find(usable.begin(), usable.end(), thread), usable.end());
    }
  }
  EXPECT_EQ(count, (std::map<int, int>{{0, 3}, {1, 1}}));
}

TEST_F(TwoNodes, MoreThreadsThanANodeHasAreNotBoundToIt) {
  const HostPlacement placed = place_host(
      topology_, {.usable = all_of(topology_), .threads = 17, .sharer = 1, .sharers = 2});
  EXPECT_TRUE(placed.threads.empty());
  EXPECT_EQ(placed.nodes, std::vector<int>{1});
}

TEST(Placement, ThreeRanksOnFourNodesUseThemAll) {
  const Topology topology("numa:4 core:3 pu:1");
  std::set<int> used;
  for (int rank = 0; rank < 3; ++rank) {
    const HostPlacement placed = place_host(
        topology, {.usable = all_of(topology), .threads = 3, .sharer = rank, .sharers = 3});
    EXPECT_FALSE(placed.nodes.empty());
    used.insert(placed.nodes.begin(), placed.nodes.end());
    for (const Threads& threads : placed.threads) {
      for (const int node : nodes_of(topology, threads)) {
        EXPECT_NE(std::find(placed.nodes.begin(), placed.nodes.end(), node), placed.nodes.end());
      }
    }
  }
  EXPECT_EQ(used.size(), 4U);
}

TEST(Placement, OneNodeNeedsNone) {
  const Topology topology("numa:1 core:6 pu:2");
  const HostPlacement placed =
      place_host(topology, {.usable = all_of(topology), .threads = 3, .sharer = 1, .sharers = 2});
  EXPECT_TRUE(placed.threads.empty());
  EXPECT_TRUE(placed.nodes.empty());
  EXPECT_EQ(describe(topology, placed), "");
}

TEST(Placement, CpusOfNoKnownNodeChangeNothing) {
  const Topology topology("numa:2 core:2 pu:1");
  EXPECT_TRUE(place_host(topology, {.usable = {77}, .threads = 1}).nodes.empty());
}

TEST(Placement, ANonsensicalRankIsAnError) {
  const Topology topology("numa:2 core:2 pu:1");
  EXPECT_THROW((void)place_host(topology, {.usable = {0}, .threads = 1, .sharer = 2, .sharers = 2}),
               Error);
  EXPECT_THROW((void)place_host(topology, {.usable = {0}, .threads = 0}), Error);
}

Threads affinity_here() {
  cpu_set_t set;
  Threads threads;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return threads;
  for (std::size_t i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) threads.push_back(static_cast<int>(i));
  }
  return threads;
}

// The true binding, of this machine: workers are within their sets, callers as they were.
TEST(Placement, WorkersOfThePoolBindThemselves) {
  auto topology = std::make_shared<const Topology>();
  const Threads usable = topology->usable_threads();
  const Threads before = affinity_here();
  EXPECT_EQ(usable, before);
  const int pool_before = compute_threads();
  set_compute_threads(3);
  const HostPlacement placement{.threads = {{usable.front()}, {usable.back()}}, .nodes = {0}};
  const std::shared_ptr<PageSource> pages = apply_placement(topology, placement);
  std::mutex mutex;
  std::set<Threads> seen;
  const auto caller = std::this_thread::get_id();
  // The caller's own piece waits for another thread: on a busy machine one may come too late for
  // any number of short loops.
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const auto waits = [&] {
    const std::lock_guard lock(mutex);
    return seen.empty() && std::chrono::steady_clock::now() < until;
  };
  parallel_for(3, 1, [&](std::int64_t, std::int64_t) {
    if (std::this_thread::get_id() == caller) {
      while (waits()) std::this_thread::sleep_for(std::chrono::microseconds(100));
      return;
    }
    const std::lock_guard lock(mutex);
    seen.insert(affinity_here());
  });
  EXPECT_FALSE(seen.empty());
  for (const Threads& threads : seen) {
    if (threads == before) continue;  // refused, as it may be
    EXPECT_TRUE(threads == placement.threads[0] || threads == placement.threads[1])
        << threads.size();
  }
  EXPECT_EQ(affinity_here(), before);

  void* memory = pages->map(1 << 20);
  static_cast<char*>(memory)[4096] = 1;
  pages->unmap(memory, 1 << 20);
  (void)apply_placement(topology, {});
  set_compute_threads(pool_before);
}

TEST(Placement, OfThisProcessNeverFails) {
  const std::shared_ptr<PageSource> pages = place_rank_on_host(0, 2, compute_threads(), false);
  ASSERT_NE(pages, nullptr);
  void* memory = pages->map(8192);
  static_cast<char*>(memory)[0] = 1;
  pages->unmap(memory, 8192);
  (void)apply_placement(nullptr, {});
}

}  // namespace
}  // namespace sluice
