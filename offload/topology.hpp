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
};

class Topology {
 public:
  Topology();  // asks the system once; throws Error where it has no answer
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

  // Both are advice: false where the system refuses (containers often do), and nothing changed.
  bool bind_thread(const std::vector<int>& cores) const;
  bool prefer_memory(void* memory, std::int64_t bytes, int node) const;  // before its first touch

  [[nodiscard]] std::string description() const;  // "2 nodes, 64 cores, 128 threads"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
