// Resuming from a checkpoint: chooses the checkpoint and restores its states to the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/communicator.hpp"
#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/checkpoint/io/file_system.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/run/state_io.hpp"

namespace sluice {

struct ResumeRequest {
  std::string from = "never";  // "auto", "never", a checkpoint, or a folder of checkpoints
  std::string dir{};           // folder of this run's checkpoints; empty: no checkpoints
  // Bytes of memory.host that the plan leaves on this rank, as for saves; nullopt: no budget.
  // Restoring takes 24 MiB, or less if less is left.
  std::optional<std::int64_t> room_bytes = {};
  TextMap settings = {};    // settings_of() this run
  std::string tokenizer{};  // fingerprint; empty: no tokenizer
};

// Called before a process starts. Throws IoError or CheckpointError if the folder `from` holds no
// complete checkpoint.
void check_resume_source(FileSystem& files, const ResumeRequest& request);
// Name of the newest checkpoint of an earlier run in `dir`, if this run resumes from none of them.
// The run would mix its checkpoints with the earlier ones and purge them. nullopt: none.
[[nodiscard]] std::optional<std::string> earlier_checkpoint(FileSystem& files,
                                                            const ResumeRequest& request);
// Checks the resume source, and throws if `dir` has an earlier checkpoint.
void check_resume(FileSystem& files, const ResumeRequest& request);

// Throws ConfigError if `saved` (in `path`) is of another tokenizer, or of another model with the
// same shapes.
void check_same_run(const ResumeRequest& request, const RunState& saved, const std::string& path);
// For a checkpoint or an image with moments. Throws ConfigError if the moments are of another
// optimizer than the settings name.
void check_same_optimizer(const ResumeRequest& request, const RunState& saved,
                          const std::string& path);

// The checkpoint that a resume tries first, known by its manifest alone.
struct ResumePoint {
  std::string path;
  RunState run;
  std::int64_t last_step = 0;

  [[nodiscard]] bool finished() const { return run.step >= last_step; }
};

// Finds this checkpoint, before an engine exists, and makes resume_run()'s checks of its manifest
// against a run of the whole model `spec`. nullopt: nothing to resume from. Throws as resume_run().
[[nodiscard]] std::optional<ResumePoint> find_resume_point(FileSystem& files,
                                                           const ResumeRequest& request,
                                                           const ModelSpec& spec,
                                                           std::int64_t last_step);
// "x/step-00000010 is of step 10 and train.steps is 10: the run is finished, ..."
[[nodiscard]] std::string finished_text(const std::string& path, std::int64_t step,
                                        std::int64_t last_step);

struct Resumed {
  std::optional<RunState> run;         // nullopt: nothing to resume from, the engine is as before
  std::string path;                    // path of the checkpoint
  TrainedMoments moments;              // default: none were read
  std::vector<std::string> known_bad;  // names in request.dir whose contents are damaged
};

// Step of the newest complete checkpoint of `dir` that rank 0 sees, equal on every rank; -1: no
// checkpoint. Reads manifests. Collective. Throws IoError where the system cannot read the folder.
[[nodiscard]] std::int64_t newest_step(const std::string& dir, FileSystem& files,
                                       Communicator& comm);
// The same of the newest checkpoint whose contents are as they were saved: the ranks read every
// byte. Warns of newer ones. `alive` is called at least every few seconds. Collective.
[[nodiscard]] std::int64_t newest_whole_step(const std::string& dir, FileSystem& files,
                                             Communicator& comm,
                                             const std::function<void()>& alive);
// Throws IoError on every rank unless the contents of the checkpoint that `from` names are as they
// were saved. Collective.
void check_whole(const std::string& from, FileSystem& files, Communicator& comm,
                 const std::function<void()>& alive);

// Restores the newest checkpoint of request.dir ("auto"), or the named one, on every rank. Rank 0
// chooses the checkpoint and checks its file sizes. Each rank reads its own pieces and verifies
// their checksums. If a rank finds damage, all ranks warn and fall back to the checkpoint before. A
// checkpoint at or after `last_step` is not read, because no steps remain. Collective: all ranks
// return the same result, or all throw. Throws IoError if no existing checkpoint can be read,
// ConfigError for another model or tokenizer.
[[nodiscard]] Resumed resume_run(const ResumeRequest& request, std::int64_t last_step,
                                 Engine& engine, Communicator& comm, FileSystem& files,
                                 const std::function<void()>& alive);

}  // namespace sluice
