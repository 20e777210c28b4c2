// Starts the ranks of this host as processes of the same program and supervises them to their ends.
//
// Each rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,
// OMP_NUM_THREADS (unless the user set it), SLUICE_JOB_SECRET (new for each start unless the user
// set it), SLUICE_ERROR_FILE (error_report.hpp) and a description of this process's terminal
// (process_environment.hpp). Its output goes to <output_dir>/rank-N.log; rank 0's also to this
// process's standard output and error. supervisor.hpp and failure.hpp describe the ends.
//
// After a rank failed, the other ranks end within kill_grace + 3 s, and the last lines on standard
// error name the first failure. If this process is killed, the system kills the ranks.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/launch/hosts/agent.hpp"

namespace sluice {

struct LaunchRequest {
  int nproc = 1;                              // ranks, where this process is no agent
  std::vector<std::string> argv = {};         // of each rank, argv[0] included
  std::string output_dir = {};                // created where missing
  std::string executable = "/proc/self/exe";  // this program, even if its file was replaced
  std::vector<std::pair<std::string, std::string>> environment = {};  // added for each rank
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  // 0: MASTER_PORT of the environment, or else a free one, where rank 0 is
  // This process is an agent: it starts these ranks of a larger job, obeys words, and reports in a
  // record.
  std::optional<AgentPlace> agent = {};
  int threads = 0;  // launch.threads; 0: OMP_NUM_THREADS of the environment, or the cores divided
  std::chrono::milliseconds kill_grace{3000};   // from SIGTERM to SIGKILL after a failure
  std::chrono::milliseconds stop_grace{10000};  // ... after Ctrl-C, to finish a step
  bool ends_with_reader = false;  // the ranks are stopped once nobody reads standard output
};

struct LaunchResult {
  // The code of the rank that failed first (5 if a signal killed that rank). 130 if a signal or the
  // ranks themselves stopped the run and no rank failed.
  int exit_code = 0;
  bool worth_restarting = false;  // a rank failed, all are gone, and it need not fail again
  bool output_lost = false;       // standard output did not take all that the ranks printed
  bool reader_gone = false;       // ... since its reader had ended
  std::string cause = {};         // "rank 1 on host7 failed: ..."; empty: no rank failed
};

// Runs the ranks to their ends. Throws ConfigError (port in use, nproc), IoError (output_dir) or
// Error (a process cannot be started); after an error no rank is left. Takes over the stop signals
// of the process meanwhile: call it from the main thread, before other threads exist.
[[nodiscard]] LaunchResult run_launcher(const LaunchRequest& request);

}  // namespace sluice
