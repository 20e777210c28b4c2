// A rank that uses weights and does not train: `eval` and `generate`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/mesh_comms.hpp"
#include "runtime/cli/setup/run_setup.hpp"
#include "runtime/cli/setup/weights_setup.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/launch/rank_env.hpp"
#include "runtime/launch/watchdog.hpp"

namespace sluice {

// Not thread-safe; for the process's main thread.
class UseRank {
 public:
  // Binds the process, connects to the other ranks (collective) and decides the type of 16-bit
  // products. Notes on the weights go to the log of rank 0.
  UseRank(UsedWeights& weights, const RankEnvironment& rank);

  // Options of an engine that reads the weights.
  [[nodiscard]] EngineOptions options(EnginePurpose purpose) const;
  // Throws BudgetError before taking memory if the program exceeds a budget.
  [[nodiscard]] std::unique_ptr<Engine> make_engine(const EngineOptions& options);

  [[nodiscard]] Communicator& comm() { return comms_->world(); }
  [[nodiscard]] Watchdog& watchdog() { return watchdog_; }
  [[nodiscard]] bool is_rank_0() const { return rank_.rank == 0; }

 private:
  const UsedWeights& weights_;
  const RankEnvironment rank_;
  Watchdog watchdog_;
  std::unique_ptr<MeshComms> comms_;
};

// The rank of this process: of a job, or alone.
[[nodiscard]] RankEnvironment own_rank();
// Whether to start ranks. False: this process is a rank.
[[nodiscard]] bool starts_ranks(int nproc);

// Of a command whose output has no reader any more, as after `| head`: that of a process which
// SIGPIPE has ended.
inline constexpr int kReaderGoneExitCode = 141;

// Starts `nproc` ranks of this program with these arguments and passes rank 0's output on. Stops
// the ranks once that output has no reader. Returns the exit code. After a failure the ranks' logs
// stay in the folder for temporary files.
int launch_users(int nproc, const std::vector<std::string>& argv, int threads);

// A folder of this process, removed by the destructor.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  void keep() { kept_ = true; }  // it outlives the object

 private:
  std::string path_;
  bool kept_ = false;
};

}  // namespace sluice
