// The parts of checkpoint: and --resume that are decided and checked before a run starts.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

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
// Locks both folders for its lifetime. The launcher holds the lock, restarts included; rank 0 holds
// it if another program started the ranks. Repeats check_resume, since the last owner may have
// saved. If the user set no key of saving and the run does not resume, an earlier run's checkpoints
// are renamed to checkpoints.1 and so on; of a symbolic link the target is renamed.
[[nodiscard]] WriterLock lock_folders(const LoadedConfig& config, const std::string& resume);

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
