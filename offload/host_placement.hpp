// Where the compute threads of a rank run and where its host tier's pages lie, so that the host's
// optimizer works on memory near it.
//
//   cores of a rank          compute threads          host pages
//   of one node              as the process is bound  of that node
//   of several               a part of them on each   of these nodes in turns
//   of all ranks, not bound  on the rank's node       of it
//
// Nothing leaves the CPUs that the process may use, and where the machine has one node nothing is
// bound at all. libtorch's own threads stay as the process is bound.
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
  int sharer = 0;           // the usable ones are those of `sharers` ranks: which of them this is
  int sharers = 1;          //   (1: of this rank alone)
};

struct HostPlacement {
  // Compute thread i may run on threads[i % threads.size()]; empty: where the process may.
  std::vector<std::vector<int>> threads;
  std::vector<int> nodes;  // indices in Topology::nodes(), of the pages; empty: where first touched
};

// Pure. REQUIRES: 0 <= sharer < sharers, threads >= 1.
[[nodiscard]] HostPlacement place_host(const Topology& topology, const PlacementRequest& request);

// Has the compute threads (kernels/cpu/parallel.hpp) bind themselves as planned as they start, and
// returns the pages of the host tier. Where the system refuses either, that is logged once and
// nothing changes. Not to be called while another thread starts a loop.
[[nodiscard]] std::shared_ptr<PageSource> apply_placement(std::shared_ptr<const Topology> topology,
                                                          const HostPlacement& placement);

// place_host and apply_placement on this machine, for the calling process. Never fails: where the
// system tells nothing about itself, that is logged and the pages are ordinary ones.
// `own`: the CPUs are this rank's alone (the launcher has bound it).
[[nodiscard]] std::shared_ptr<PageSource> place_rank_on_host(int local_rank, int local_ranks,
                                                             int threads, bool own);

// "compute threads on memory nodes 0 and 1, host pages on both in turns"; empty where nothing is
// bound.
[[nodiscard]] std::string describe(const Topology& topology, const HostPlacement& placement);

}  // namespace sluice
