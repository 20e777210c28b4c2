// Cores of the ranks of this host. The usable cores (affinity and cpuset of this process) are
// divided over the local ranks: contiguous, in whole NUMA nodes or parts of one if no rank then has
// fewer cores. Each core gets one compute thread, since a core's second hardware thread adds
// nothing to arithmetic. Nothing is bound if there are fewer cores than ranks, or if a control
// group limits time rather than cores, because other processes use the cores too.
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

// Binds the calling process. Call it before compute threads exist, since threads inherit the
// binding. Never fails: if the system refuses, the summary says so. Throws ConfigError for an
// invalid request (local_rank not below local_world_size, negative threads).
[[nodiscard]] Binding bind_local_rank(const BindingRequest& request);

// The number of threads that bind_local_rank would give each rank; binds nothing.
[[nodiscard]] int threads_per_rank(int local_world_size);

// The division itself. Pure. `node_of_core` is the NUMA node of each usable core, in the machine's
// order (cores of a node are neighbours). REQUIRES: at least as many cores as ranks.
struct CoreShare {
  std::size_t first = 0;
  std::size_t count = 0;
};
[[nodiscard]] CoreShare share_of_cores(std::span<const int> node_of_core, int local_rank,
                                       int local_world_size);

}  // namespace sluice
