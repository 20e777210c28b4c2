// A run over several hosts: starts one agent (agent.hpp) on each host over ssh and supervises the
// agents, as launcher.hpp supervises the ranks of one host.
//
// On this machine (is_this_host) the agent is started directly; on another host by
//
//   $SLUICE_SSH HOST 'cd FOLDER || exit 127; exec env ... PROGRAM ARGUMENTS'
//
// SLUICE_SSH is split at blanks. The default is "ssh" with options that ask for no password and
// detect a dead connection. Folder, program and files named by arguments must be at the same path
// on every host; a host that lacks folder or program ends the run, and no restart is tried. Ranks
// get RANK, WORLD_SIZE, NODE_RANK and the rest as on one host. MASTER_ADDR is the first host unless
// the environment sets it. These variables are passed on: SLUICE_*, NCCL_*, GLOO_*, TORCH_*, MKL_*,
// OMP_NUM_THREADS, OMP_WAIT_POLICY, GOMP_SPINCOUNT, LD_LIBRARY_PATH and the names in SLUICE_EXPORT
// (A,B).
//
// Rank 0's output goes to the standard streams. Each host's output goes to <output_dir>/host-N.log;
// lines of ranks on other hosts than the first begin with "[rank 5 on node2]". If an agent, a
// connection or a rank fails, the run ends on all hosts within kill_grace + 10 s.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "runtime/launch/hosts/hostfile.hpp"
#include "runtime/launch/launcher.hpp"

namespace sluice {

struct HostsRequest {
  std::vector<HostSlots> hosts = {};   // slots >= 1
  std::vector<std::string> argv = {};  // of each agent and rank, argv[0] included
  std::string executable = {};         // this program's path on every host; empty: as here
  std::string output_dir = {};         // of the logs here; created where missing
  std::vector<std::pair<std::string, std::string>> environment = {};  // of agents on this machine
  std::chrono::milliseconds kill_grace{3000};  // of the agents, for their ranks
  std::chrono::milliseconds stop_grace{10000};
};

// Runs all hosts to their ends; exit code as run_launcher's. Throws ConfigError (a port in use,
// SLUICE_SSH is no program), IoError, Error; after an error no agent is left. Main thread only.
[[nodiscard]] LaunchResult run_hosts(const HostsRequest& request);

// Ranks of all hosts.
[[nodiscard]] int world_of(const std::vector<HostSlots>& hosts);

}  // namespace sluice
