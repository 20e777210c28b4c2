// Saving as a commit. Who does what (docs/formats/checkpoint.md):
//
//   rank 0      begin_save -> SaveTarget, sent to all ranks as text
//   every rank  RankWriter: its own file; write(...) for each range; seal() -> record
//   rank 0      gathers the records, commit(); purge()
//
// Until commit's rename the directory has no manifest and counts as nothing. A save that failed on
// any rank is abandoned by rank 0 once no rank writes any more; so is one that a crash left, by the
// next begin_save.
// Functions of this file are called by one thread of one process per directory at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {

struct SaveTarget {
  std::string dir;   // of all checkpoints
  std::string name;  // of this one: "step-00000042", "step-00000042.1" where a complete one exists
  std::int64_t step = 0;
  std::int64_t generation = 0;
  std::string save_id;
  [[nodiscard]] std::string path() const;
  bool operator==(const SaveTarget&) const = default;
};
[[nodiscard]] std::string encode_target(const SaveTarget& target);
[[nodiscard]] SaveTarget decode_target(std::string_view text);

// Makes `dir` where it is missing, removes what unfinished saves of any step left, makes the step's
// directory.
[[nodiscard]] SaveTarget begin_save(FileSystem& files, const std::string& dir, std::int64_t step);

// The bytes that a save of these ranges takes on disk, for a look at the free space first.
[[nodiscard]] std::int64_t file_bytes_of(std::span<const StateRange> ranges);

struct RankWriterOptions {
  std::int64_t block_bytes = kChecksumBlockBytes;
  std::int64_t staging_bytes = 4 << 20;     // small writes are gathered into ones of this size
  std::int64_t writeback_bytes = 16 << 20;  // writeback starts behind the writer in such steps
};

// One rank's file. Different ranges may be written by different threads; calls for one range come
// from one thread at a time, in order. Holds staging_bytes and 8 bytes for each block.
class RankWriter {
 public:
  // `ranges` may be empty: the file then holds a header only. Throws Error for a range that does
  // not fit its shape or is there twice, IoError.
  RankWriter(FileSystem& files, const SaveTarget& target, int rank,
             std::span<const StateRange> ranges, const RankWriterOptions& options = {});
  ~RankWriter();  // closes; without seal() the file stays unfinished
  RankWriter(RankWriter&& other) noexcept;
  RankWriter& operator=(RankWriter&& other) noexcept;

  // The next bytes of range number `range`; whole elements. Little-endian, as in memory.
  void write(std::size_t range, std::span<const std::byte> bytes);
  [[nodiscard]] std::int64_t written_bytes() const;
  // Syncs file and directory. Returns the record for commit(). Throws Error naming a range that is
  // not whole.
  [[nodiscard]] std::string seal();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Makes the checkpoint complete and moves `latest` to it: `records` are those of all ranks, in any
// order. Throws CheckpointError where they do not make a whole (check_manifest) or a rank's file is
// not where rank 0 looks. The files of run.tokenizer are written first. After an exception the
// directory may be complete (the rename happened), but not with certainty: never purge then. That
// `latest` could not be moved is a warning.
void commit(FileSystem& files, const SaveTarget& target, std::span<const std::string> records,
            const RunState& run);

// Removes an unfinished save; a complete one stays. Never throws: what cannot be removed stays for
// the next begin_save.
void abandon_save(FileSystem& files, const SaveTarget& target) noexcept;

struct PurgeOptions {
  int keep = 2;                        // the newest complete ones that stay, 1 at least; 0: all
  std::vector<std::string> known_bad;  // names refused at resume: they do not count as complete
};
// Removes complete checkpoints beyond the newest `keep`, and unfinished or bad ones that are older
// than the newest complete one. A manifest goes first and durably, so that nothing half-removed
// looks complete. Returns the names removed.
std::vector<std::string> purge(FileSystem& files, const std::string& dir,
                               const PurgeOptions& options);

}  // namespace sluice
