// Going on from a checkpoint: which one, and its states into the engine.
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

namespace sluice {

struct ResumeRequest {
  std::string from = "never";  // "auto", "never", or a checkpoint's folder, or one of checkpoints
  std::string dir{};           // of this run's checkpoints; empty: it makes none
  // Of memory.host, what the plan leaves on this rank, as for saving; nullopt: no budget was given.
  // Restoring takes 24 MiB of it while it lasts, less where there is less.
  std::optional<std::int64_t> room_bytes = {};
  TextMap settings = {};    // settings_of() this run
  std::string tokenizer{};  // its fingerprint; empty: it has none
};

// Before a process starts. Throws IoError or CheckpointError where `from` is a folder that holds no
// complete checkpoint.
void check_resume_source(FileSystem& files, const ResumeRequest& request);
// Of an earlier run's checkpoints in `dir` the newest one's name, where this run goes on from none
// of them: it would mix its own with those, and purge them. nullopt: there is none.
[[nodiscard]] std::optional<std::string> earlier_checkpoint(FileSystem& files,
                                                            const ResumeRequest& request);
// Both: throws where there is an earlier checkpoint as well.
void check_resume(FileSystem& files, const ResumeRequest& request);

// Throws ConfigError where `saved`, which lies in `path`, is of another model than the settings
// say, though of the same shapes, or of another tokenizer.
void check_same_run(const ResumeRequest& request, const RunState& saved, const std::string& path);
// For a checkpoint or an image that holds moments. Throws ConfigError where the moments are of
// another optimizer than the settings name: they have no meaning to this one.
void check_same_optimizer(const ResumeRequest& request, const RunState& saved,
                          const std::string& path);

struct Resumed {
  std::optional<RunState> run;         // nullopt: there was nothing to go on from
  std::string path;                    // of the checkpoint
  bool moments = true;                 // false: it holds weights alone
  std::vector<std::string> known_bad;  // names in request.dir whose contents are damaged
};

// The step of the newest complete checkpoint of `dir` that rank 0 sees, on every rank; -1: there is
// none, or it cannot be looked at. Collective.
[[nodiscard]] std::int64_t newest_step(const std::string& dir, FileSystem& files,
                                       Communicator& comm);

// Restores the newest checkpoint of request.dir ("auto"), or the one named, on every rank. Rank 0
// chooses it and looks at its files' sizes; the others take its word for that, and each reads what
// it owns and compares checksums while it reads. Where a rank finds one damaged, all fall back to
// the one before, with a warning. A checkpoint at or after `last_step` is not read: there is
// nothing left to train. Collective: all ranks return the same, or all throw. Throws IoError where
// nothing that is there can be read, ConfigError for another model or another tokenizer.
[[nodiscard]] Resumed resume_run(const ResumeRequest& request, std::int64_t last_step,
                                 Engine& engine, Communicator& comm, FileSystem& files,
                                 const std::function<void()>& alive);

}  // namespace sluice
