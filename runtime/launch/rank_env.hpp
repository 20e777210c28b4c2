// Who this process is in a job that something else started: this launcher, torchrun, mpirun with a
// wrapper, a batch script. And the rendezvous port of a job started here.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "runtime/observe/file_io.hpp"

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

// From RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Where none of the
// first four is set (MASTER_* alone are the wish of somebody who launches): from srun's variables
// (slurm_env.hpp), nullopt where there are none either. Throws ConfigError, one line per variable
// that is missing, malformed or out of range.
[[nodiscard]] std::optional<RankEnvironment> rank_environment();
[[nodiscard]] std::optional<RankEnvironment> rank_environment(const GetEnvironment& get);

// Says in this process's environment what `rank` says, for what goes by RANK: messages, reports,
// failure injection. Before threads exist.
void announce_rank(const RankEnvironment& rank);

// A TCP port that nothing uses now.
[[nodiscard]] int free_port();

// True where a process listens on this port of a local address (a name or a number). False
// for an address of another host: nothing can be said from here. Throws ConfigError where the
// address cannot be resolved.
[[nodiscard]] bool port_in_use(const std::string& address, int port);

// Keeps a port from being handed to somebody else until rank 0's store listens there: bound, never
// listening, reusable. The holder must outlive the start of the ranks.
class PortReservation {
 public:
  // port 0: MASTER_PORT of the environment, or else any free one. Throws ConfigError where the
  // given port is in use or is none.
  explicit PortReservation(int port = 0);
  [[nodiscard]] int port() const { return port_; }

 private:
  int port_ = 0;
  UniqueFd socket_;
};

}  // namespace sluice
