// A rank that uses weights rather than trains them: `eval` and `generate`.
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

// Not thread-safe; of the process's main thread.
class UseRank {
 public:
  // Binds the process, connects to the other ranks (collective) and settles what 16-bit products
  // run in. Notes of the weights go to the log of rank 0.
  UseRank(UsedWeights& weights, const RankEnvironment& rank);

  // Of the configuration; reads the weights where an engine is made of them.
  [[nodiscard]] EngineOptions options(EnginePurpose purpose) const;
  // Throws BudgetError where its program needs more than a budget allows, before anything is taken.
  [[nodiscard]] std::unique_ptr<Engine> make_engine(const EngineOptions& options);

  [[nodiscard]] Communicator& comm() { return comms_->world(); }
  [[nodiscard]] Watchdog& watchdog() { return watchdog_; }
  [[nodiscard]] bool speaks() const { return rank_.rank == 0; }

 private:
  const UsedWeights& weights_;
  const RankEnvironment rank_;
  Watchdog watchdog_;
  std::unique_ptr<MeshComms> comms_;
};

// The rank that this process is: of somebody's job, or alone.
[[nodiscard]] RankEnvironment own_rank();
// Whether to start ranks rather than to be one.
[[nodiscard]] bool starts_ranks(int nproc);

// Starts `nproc` ranks of this program with these arguments; what rank 0 prints comes through.
// Returns the exit code. Their logs stay, in the folder for temporary files, where one failed.
int launch_users(int nproc, const std::vector<std::string>& argv, int threads);

// A folder of this process, gone with the object.
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
