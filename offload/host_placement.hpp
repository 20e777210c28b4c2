// Placement of a rank's compute threads and host pages on memory nodes, so that the optimizer on
// the host works on memory near its cores.
//
// clang-format off
//   the rank's cores                    compute threads            host pages
//   on one node                         unchanged                  on that node
//   on several nodes                    a part on each node        interleaved over these nodes
//   shared by all ranks, not bound      on the rank's own node     on the rank's own node
// clang-format on
//
// Threads never leave the CPUs that the process may use. On a machine with one memory node nothing
// is bound. The threads of libtorch keep the binding of the process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "offload/host_pool.hpp"
#include "offload/topology.hpp"

namespace sluice {

struct PlacementRequest {
  std::vector<int> usable;  // hardware threads the process may run on (Topology::usable_threads)
  int threads = 1;          // compute threads
  int sharer = 0;           // index of this rank among the ranks that share the usable threads
  int sharers = 1;          // number of these ranks; 1: this rank has the threads alone
};

struct HostPlacement {
  // Compute thread i may run on the CPUs threads[i % threads.size()]. Empty: threads are not bound.
  std::vector<std::vector<int>> threads;
  // Memory nodes of the pages, as indices in Topology::nodes(). Empty: pages are not bound.
  std::vector<int> nodes;
};

// Pure. REQUIRES: 0 <= sharer < sharers, threads >= 1.
[[nodiscard]] HostPlacement place_host(const Topology& topology, const PlacementRequest& request);

// Makes each compute thread (kernels/cpu/parallel.hpp) bind itself when it starts. Returns the page
// source of the host tier. If the system refuses a binding, the log says so once and the binding
// stays as it was. REQUIRES: no other thread starts a parallel loop meanwhile.
[[nodiscard]] std::shared_ptr<PageSource> apply_placement(std::shared_ptr<const Topology> topology,
                                                          const HostPlacement& placement);

// place_host() and apply_placement() for the calling process on this machine. Never throws: if the
// topology cannot be read, the log says so and the result is an ordinary page source.
// `own`: this rank has its CPUs alone because the launcher has bound the process.
[[nodiscard]] std::shared_ptr<PageSource> place_rank_on_host(int local_rank, int local_ranks,
                                                             int threads, bool own);

// "compute threads and host pages on memory nodes 0, 1 in turns"; empty if nothing is bound.
[[nodiscard]] std::string describe(const Topology& topology, const HostPlacement& placement);

}  // namespace sluice
