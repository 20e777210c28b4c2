// The host's cores and memory nodes, as far as placing threads and buffers near each other needs
// them. Only what this process may use counts (its affinity, its container). Immutable and
// thread-safe; binding acts on the calling thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sluice {

struct MemoryNode {
  int os_index = 0;               // as in /sys/devices/system/node
  std::int64_t memory_bytes = 0;  // 0: the system does not say
  std::vector<int> cores;         // the first hardware thread of each, by its number in the system
  std::vector<int> threads;       // all hardware threads, by their numbers
};

class Topology {
 public:
  Topology();  // asks the system once; throws Error where it has no answer
  // A machine that is not there, in hwloc's words: "numa:2 core:8 pu:2". Binding does nothing.
  explicit Topology(const std::string& synthetic);
  ~Topology();
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  [[nodiscard]] const std::vector<MemoryNode>& nodes() const;  // at least one
  [[nodiscard]] int cores() const;
  [[nodiscard]] int hardware_threads() const;

  // The cores of process `local_rank` of `local_ranks` on this host: neighbours, whole nodes where
  // they divide. With more ranks than cores several share one.
  [[nodiscard]] std::vector<int> share_of(int local_rank, int local_ranks) const;
  // Index in nodes() of the node that holds most of `cores`.
  [[nodiscard]] int node_near(const std::vector<int>& cores) const;

  // Hardware threads that the calling thread may run on, by their numbers, ascending.
  [[nodiscard]] std::vector<int> usable_threads() const;

  // Advice: false where the system refuses (containers often do), and nothing changed.
  bool bind_thread(const std::vector<int>& threads) const;
  // Before its first touch: pages of these nodes (indices in nodes()), in turns where several.
  bool prefer_memory(void* memory, std::int64_t bytes, const std::vector<int>& nodes) const;

  [[nodiscard]] std::string description() const;  // "2 nodes, 64 cores, 128 threads"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
