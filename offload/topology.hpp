// The host's cores and memory nodes, for placing threads and buffers near each other. Contains only
// the cores that this process may use (container, allowed CPUs). Immutable and thread-safe; binding
// acts on the calling thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sluice {

struct MemoryNode {
  int os_index = 0;               // number in /sys/devices/system/node
  std::int64_t memory_bytes = 0;  // 0: unknown
  std::vector<int> cores;         // system number of the first hardware thread of each core
  std::vector<int> threads;       // system numbers of all hardware threads
};

class Topology {
 public:
  Topology();  // reads this machine's topology once; throws Error if hwloc cannot
  // A synthetic machine in hwloc's notation, such as "numa:2 core:8 pu:2". Binding does nothing.
  explicit Topology(const std::string& synthetic);
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  [[nodiscard]] const std::vector<MemoryNode>& nodes() const;  // at least one
  [[nodiscard]] int cores() const;
  [[nodiscard]] int hardware_threads() const;

  // The cores of local rank `local_rank` of `local_ranks`: neighbouring cores, and whole nodes if
  // the numbers divide. If there are more ranks than cores, several ranks share a core.
  [[nodiscard]] std::vector<int> share_of(int local_rank, int local_ranks) const;

  // System numbers of the hardware threads that the calling thread may run on, ascending.
  [[nodiscard]] std::vector<int> usable_threads() const;

  // Both return false, without effect, if the system refuses, as containers often do.
  bool bind_thread(const std::vector<int>& threads) const;
  // Places the pages on these nodes (indices in nodes()), interleaved over several nodes. REQUIRES:
  // the memory has not been touched.
  bool prefer_memory(void* memory, std::int64_t bytes, const std::vector<int>& nodes) const;

  [[nodiscard]] std::string description() const;  // "2 nodes, 64 cores, 128 threads"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
