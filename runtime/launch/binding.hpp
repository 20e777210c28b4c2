// Which cores a rank of this host computes on. The cores that this process may use (its affinity
// and cpuset) are divided over the local ranks: contiguous, whole NUMA nodes or parts of one where
// that leaves no rank with less. One compute thread per core, since the second hardware thread of a
// core adds nothing to arithmetic. Nothing is bound where there are fewer cores than ranks, or
// where a control group limits time rather than cores: then the cores belong to others as well.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace sluice {

struct BindingRequest {
  int local_rank = 0;
  int local_world_size = 1;
  int threads = 0;  // wished (launch.threads); 0: one per core of the share
};

struct Binding {
  int threads = 1;        // compute threads to use
  bool bound = false;     // all threads of the process, and those to come
  std::vector<int> cpus;  // the operating system's numbers, where bound
  std::string summary;    // one line for the log
};

// Binds the calling process. Call it before compute threads exist that should inherit it. Never
// fails: where the system refuses, it says so in the summary. Throws ConfigError on a request that
// makes no sense (local_rank not below local_world_size, negative threads).
[[nodiscard]] Binding bind_local_rank(const BindingRequest& request);

// The threads that bind_local_rank would give each rank; binds nothing.
[[nodiscard]] int threads_per_rank(int local_world_size);

// The division itself. Pure. `node_of_core` has the NUMA node of each usable core, in the machine's
// order (cores of a node are neighbours). REQUIRES: at least as many cores as ranks.
struct CoreShare {
  std::size_t first = 0;
  std::size_t count = 0;
};
[[nodiscard]] CoreShare share_of_cores(std::span<const int> node_of_core, int local_rank,
                                       int local_world_size);

}  // namespace sluice
