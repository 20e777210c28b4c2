// What a run may take of this host: free memory and swap, and the disks of offload.nvme_path.
// Functions of their arguments and of the host at the time of the call; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/cli/setup/run_setup.hpp"

namespace sluice {

// Bytes of the host, for all of its ranks; 0: not known.
struct HostRoom {
  std::int64_t memory = 0;  // free memory and swap
  std::int64_t swap = 0;    // a part of `memory`
  std::int64_t nvme = 0;    // without offload.nvme_path, the roomiest disk's
};
// Nothing is known if the ranks run on other hosts.
[[nodiscard]] HostRoom host_room(const RunConfig& run);

// The ranks of the job that run here, consecutive ones: all without launch.hostfile, else those of
// the file's line for this host.
struct HostRanks {
  int first = 0;
  int count = 0;
};
[[nodiscard]] HostRanks ranks_here(const RunConfig& run, int local_ranks);

// What the host lacks, in a sentence each: the place, the need, what is free, and what to do.
// `need`: peaks of the host's ranks together. Ranks on CPUs have their device in the host's memory.
[[nodiscard]] std::vector<std::string> shortages(const HostRoom& room, const TierBytes& need,
                                                 const RunConfig& run, const RunPlace& place);

// `run` with budgets that stay within the room.
[[nodiscard]] RunConfig within(RunConfig run, const HostRoom& room, const RunPlace& place);

// Memory of the room that a plan may take; 0: not known. A sixteenth stays free, since another
// process may take it before the run starts.
[[nodiscard]] inline std::int64_t memory_to_plan(const HostRoom& room) {
  return room.memory - room.memory / 16;
}

}  // namespace sluice
