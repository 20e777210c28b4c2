// The parts of checkpoint: and --resume that are decided and checked before a run starts.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/reader.hpp"
#include "runtime/checkpoint/io/writer_lock.hpp"
#include "runtime/cli/setup/run_setup.hpp"
#include "runtime/data/training_data.hpp"
#include "runtime/launch/launcher.hpp"
#include "runtime/plan/plan_text.hpp"
#include "runtime/run/run_saver.hpp"

namespace sluice {

// Every run saves by itself, unless checkpoint.at_end is false and neither every nor time_limit is
// given.
[[nodiscard]] SavingOptions saving_options(const LoadedConfig& config, const std::string& resume);

// Bytes of a checkpoint's tensors on the disk. REQUIRES: as engine_options.
[[nodiscard]] std::int64_t checkpoint_bytes(const RunConfig& run, const RunPlace& place);
// A line for the dry run and the plan: "saves after the last step: 37.7 MiB in runs/a/checkpoints
// ...".
[[nodiscard]] std::string describe_saving(const LoadedConfig& config, const RunPlace& place);

// Called before a process starts. Throws IoError if the checkpoint to resume from is missing, or
// checkpoint.dir belongs to another run (resume.hpp); BudgetError if memory.host has no room for
// saving, or the disk has none for a checkpoint. Warns if the disk has no room for all kept
// checkpoints.
void check_saving(const LoadedConfig& config, const std::string& resume, const RunPlace& place,
                  const MemoryPlan& memory);
// The part of check_saving() that does not look at earlier checkpoints.
void check_room_to_save(const LoadedConfig& config, const std::string& resume,
                        const RunPlace& place, const MemoryPlan& memory);

// Throws IoError if another run is writing to output.dir or checkpoint.dir. Creates no file.
void check_folders_free(const LoadedConfig& config, const std::string& resume);
// Folders that were renamed. The destructor gives them their names again, unless keep() was called.
class MovedFolders {
 public:
  struct Folder {
    std::string from, to;
  };
  MovedFolders() = default;
  ~MovedFolders();
  MovedFolders(const MovedFolders&) = delete;
  MovedFolders& operator=(const MovedFolders&) = delete;

  void add(Folder folder) { folders_.push_back(std::move(folder)); }
  void keep() { folders_.clear(); }

 private:
  std::vector<Folder> folders_;
};

// output.dir and checkpoint.dir, locked for the object's lifetime. The launcher holds the locks,
// restarts included; rank 0 holds them if another program started the ranks. Not thread-safe.
class RunFolders {
 public:
  // Repeats check_resume, since the last owner may have saved. If the user set no key of saving and
  // the run does not resume, an earlier run's checkpoints are renamed to checkpoints.1 and so on;
  // of a symbolic link the target is renamed. Throws IoError.
  RunFolders(const LoadedConfig& config, const std::string& resume);

  // Call this when the ranks have accepted the run (accept_run_files). Without this call the
  // earlier checkpoints get their name again in the end.
  void keep_moved() { moved_.keep(); }

 private:
  MovedFolders moved_;                     // declared first: moves back when the locks are free
  std::optional<WriterLock> output_lock_;  // of checkpoint.dir too if a key of saving is set
  std::optional<WriterLock> checkpoint_lock_;
};

// The checkpoint that --resume restores; nullopt: none. Reads manifests only. Called before a file
// of the run is written: a refused resume leaves the earlier run's files as they are. `tokenizer`:
// the run's; may be null. Throws as the ranks' resume does (find_resume_point), except that a run
// with an image on NVMe needs no readable checkpoint. REQUIRES: the vocabulary is known.
[[nodiscard]] std::optional<ResumePoint> check_resumed(const LoadedConfig& config,
                                                       const std::string& resume,
                                                       const RunPlace& place,
                                                       const Tokenizer* tokenizer);

// The decision on train.matmul: auto of the run that this one continues; nullopt if there is none
// or nothing to decide. Reads a manifest. Readers of the states report damage.
[[nodiscard]] std::optional<MatmulType> resumed_matmul(const LoadedConfig& config,
                                                       const std::string& resume);

// How long the launcher waits after a stop: of a run that saves or keeps an image launch.timeout
// and the time in which a slow disk writes a checkpoint, or two if one may be under way. `world`:
// ranks of the job. REQUIRES: as engine_options.
[[nodiscard]] std::chrono::milliseconds stop_grace(const LoadedConfig& config,
                                                   const std::string& resume, int world);

// Starts the time limit of a run that saves.
void prepare_saving(const LoadedConfig& config, const std::string& resume, LaunchRequest& request);

}  // namespace sluice
