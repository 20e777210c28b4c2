// Inspection of checkpoint directories: list checkpoints, find the newest sound one, name every
// defect.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {

struct Defect {
  std::string file, tensor;  // empty if the defect is not inside a file or tensor
  std::int64_t offset = -1;  // in the file
  std::string what;          // the whole message
};

struct VerifyReport {
  std::int64_t files = 0, bytes = 0;  // that were read
  std::vector<Defect> defects;        // at most kMaxDefects per file, in order
  [[nodiscard]] bool sound() const { return defects.empty(); }
};
inline constexpr int kMaxDefects = 16;

// Reads every byte of the files number part, part + parts, ... of a step's directory and compares
// it with the manifest. Part 0 also reports defects of the manifest. Continues after a defect. Read
// errors of the system are defects too. parts > 1 splits the work between ranks.
[[nodiscard]] VerifyReport verify(FileSystem& files, const std::string& path, int part = 0,
                                  int parts = 1);

struct CheckpointSummary {
  std::string name, path;
  std::int64_t step = -1, generation = -1;  // -1: unknown, because no manifest is readable
  std::int64_t bytes = 0;                   // of the files
  std::string saved_at;
  WorldLayout layout;
  bool complete = false;   // the manifest is sound, and every file exists with its size
  bool is_latest = false;  // `latest` names this checkpoint
  std::string why_not;     // why the checkpoint is not complete
};
// Newest first by generation. Checkpoints of unknown generation follow, highest step first. For a
// missing directory the list is empty. For a checkpoint's own directory it holds that checkpoint.
[[nodiscard]] std::vector<CheckpointSummary> ls(FileSystem& files, const std::string& dir);

enum class Trust {
  kManifest,  // the manifest is sound, and every file exists with its size
  kContents,  // every byte has been read and compared
};
struct Refusal {
  std::string name;
  std::string reason;
};
struct NewestComplete {
  std::optional<std::string> path;  // of the step's directory
  std::string name;
  std::vector<Refusal> refused;  // newer checkpoints that are not sound, newest first; to be logged
};
// For --resume auto. `known_bad`: names to skip, because a read of them failed.
[[nodiscard]] NewestComplete newest_complete(FileSystem& files, const std::string& dir, Trust trust,
                                             const std::vector<std::string>& known_bad = {});

// Step directories, newest first. Those without a readable manifest head come last (generation -1).
// purge() and begin_save() use this list.
struct CatalogEntry {
  std::string name;
  std::int64_t step = -1, generation = -1;
  bool has_manifest = false;
  // The system failed to read the manifest, or a newer version wrote it: it may be whole.
  bool unreadable = false;
  bool misnamed = false;  // the folder's name says another step than the manifest
};
[[nodiscard]] std::vector<CatalogEntry> catalog(FileSystem& files, const std::string& dir);

}  // namespace sluice
