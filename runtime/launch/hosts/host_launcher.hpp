// A run over several hosts: starts one agent (agent.hpp) on each over ssh and sees them through,
// as launcher.hpp does with the ranks of one host.
//
// On this machine (is_this_host) the agent is started as it is; elsewhere by
//
//   $SLUICE_SSH HOST 'cd FOLDER && exec env ... PROGRAM ARGUMENTS'
//
// SLUICE_SSH is split at blanks; default "ssh" with options that ask nobody and notice a dead
// connection. The folder, the program and the files that the arguments name must be at the same
// place on every host. Ranks get RANK, WORLD_SIZE, NODE_RANK and the rest as on one host;
// MASTER_ADDR is the first host unless the environment says otherwise. Variables that begin with
// SLUICE_, NCCL_, GLOO_, TORCH_ or MKL_, OMP_NUM_THREADS, OMP_WAIT_POLICY, GOMP_SPINCOUNT,
// LD_LIBRARY_PATH and those that SLUICE_EXPORT names (A,B) go along.
//
// Rank 0's output comes to the standard streams; that of each host to <output_dir>/host-N.log, the
// lines of ranks elsewhere than on the first host as "[rank 5 on node2] ...". A host whose agent,
// connection or ranks end badly ends the run on all hosts, within kill_grace + 10 s.
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

// Runs all hosts to their ends: exit code as run_launcher's. Throws ConfigError (a port in use,
// SLUICE_SSH that is no program), IoError, Error; then no agent is left. Main thread only.
[[nodiscard]] LaunchResult run_hosts(const HostsRequest& request);

// Ranks of all hosts.
[[nodiscard]] int world_of(const std::vector<HostSlots>& hosts);

}  // namespace sluice
