// Looking at directories of checkpoints: which there are, which is the newest that can be trusted,
// what exactly is damaged.
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
  std::string file, tensor;  // empty where it is not of one
  std::int64_t offset = -1;  // in the file
  std::string what;          // the whole sentence
};

struct VerifyReport {
  std::int64_t files = 0, bytes = 0;  // looked at
  std::vector<Defect> defects;        // at most kMaxDefects of a file, in order
  [[nodiscard]] bool sound() const { return defects.empty(); }
};
inline constexpr int kMaxDefects = 16;

// Reads every byte of the files number part, part + parts, ... of a step's directory and compares
// with the manifest; part 0 also reports what is wrong with the manifest. Goes on after a defect.
// Errors of the system while reading are defects too. parts > 1 shares the work between ranks.
[[nodiscard]] VerifyReport verify(FileSystem& files, const std::string& path, int part = 0,
                                  int parts = 1);

struct CheckpointSummary {
  std::string name, path;
  std::int64_t step = -1, generation = -1;  // -1: no manifest to say so
  std::int64_t bytes = 0;                   // of its files
  std::string saved_at;
  WorldLayout layout;
  bool complete = false;   // manifest sound, every file there with its size
  bool is_latest = false;  // `latest` names it
  std::string why_not;     // where not complete
};
// Newest first (by generation, unfinished ones by name after those). A directory that is missing
// gives an empty list.
[[nodiscard]] std::vector<CheckpointSummary> ls(FileSystem& files, const std::string& dir);

enum class Trust {
  kManifest,  // manifest sound, every file there with its size; bytes are checked when read
  kContents,  // every byte read and compared
};
struct Refusal {
  std::string name;
  std::string reason;
};
struct NewestComplete {
  std::optional<std::string> path;  // of the step's directory
  std::string name;
  std::vector<Refusal> refused;  // newer ones that were not good, newest first; for a loud note
};
// For --resume auto. `known_bad`: names not to consider again (a read of them failed).
[[nodiscard]] NewestComplete newest_complete(FileSystem& files, const std::string& dir, Trust trust,
                                             const std::vector<std::string>& known_bad = {});

// Names of step directories with their order, newest first; those without a readable manifest head
// last (generation -1). What purge and begin_save go by.
struct CatalogEntry {
  std::string name;
  std::int64_t step = -1, generation = -1;
  bool has_manifest = false;
  // The system failed to read the manifest, or a newer version wrote it: it may be whole.
  bool unreadable = false;
};
[[nodiscard]] std::vector<CatalogEntry> catalog(FileSystem& files, const std::string& dir);

}  // namespace sluice
