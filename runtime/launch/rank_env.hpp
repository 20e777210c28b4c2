// The place of this process in a job, whatever started the job: this launcher, torchrun, mpirun
// with a wrapper, a batch script. Also the rendezvous port of a job started by this launcher.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/posix/descriptor.hpp"

namespace sluice {

struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        // among the ranks of this host
  int local_world_size = 1;  // how many those are
  std::string master_addr;
  int master_port = 0;
};

using GetEnvironment = std::function<const char*(const char*)>;

// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT. If none of the
// first four is set, reads srun's variables (slurm_env.hpp); MASTER_* alone belong to a user who
// starts a job. nullopt if those are missing too. Throws ConfigError: one line per variable that is
// malformed or out of range, and one line for all that are missing.
[[nodiscard]] std::optional<RankEnvironment> rank_environment();
[[nodiscard]] std::optional<RankEnvironment> rank_environment(const GetEnvironment& get);

// Whether this launcher started the rank, not another program: it sets SLUICE_ERROR_FILE and says
// once what concerns all ranks.
[[nodiscard]] bool has_launcher();

// Sets this process's environment to `rank`, for code that reads RANK: messages, reports, failure
// injection. Call it before threads exist.
void announce_rank(const RankEnvironment& rank);

// Reserves a port until rank 0's store listens on it: a bound, reusable socket that never listens.
// The holder must outlive the start of the ranks.
class PortReservation {
 public:
  // port 0: MASTER_PORT of the environment, or any free port. Throws ConfigError if the port is in
  // use or invalid.
  explicit PortReservation(int port = 0);
  [[nodiscard]] int port() const { return port_; }

 private:
  int port_ = 0;
  Descriptor socket_;
};

}  // namespace sluice
