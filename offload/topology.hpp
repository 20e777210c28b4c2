// The host's cores and memory nodes, for placing threads and buffers near each other. Contains only
// the cores that this process may use (container, allowed CPUs). Immutable and thread-safe; binding
// acts on the calling thread or process.
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

struct CpuCore {
  int node = 0;              // MemoryNode::os_index
  std::vector<int> threads;  // system numbers of its hardware threads, ascending
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

  // System numbers of the hardware threads that the calling thread may run on, ascending.
  [[nodiscard]] std::vector<int> usable_threads() const;
  // The cores of these hardware threads. Cores of a node are neighbours.
  [[nodiscard]] std::vector<CpuCore> usable_cores() const;

  // All return false, without effect, if the system refuses, as containers often do.
  bool bind_thread(const std::vector<int>& threads) const;
  bool bind_process(const std::vector<int>& threads) const;  // all its threads
  // Places the pages on these nodes (indices in nodes()), interleaved over several nodes. REQUIRES:
  // the memory has not been touched.
  bool prefer_memory(void* memory, std::int64_t bytes, const std::vector<int>& nodes) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
