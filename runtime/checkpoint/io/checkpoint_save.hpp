// A save as a commit (docs/formats/checkpoint.md):
//
//   rank 0      begin_save() -> SaveTarget, which all ranks receive as text
//   every rank  RankWriter writes the rank's file: write() for each range, seal() -> record
//   rank 0      gathers the records, then commit() and purge()
//
// Before commit()'s rename the directory has no manifest and is no checkpoint. If a save fails on
// any rank, rank 0 abandons the save once no rank writes any more. The next begin_save() removes a
// save that a crash left. One thread of one process per directory at a time calls these functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {

struct SaveTarget {
  std::string dir;   // directory of all checkpoints
  std::string name;  // "step-00000042"; "step-00000042.1" if the step has a complete checkpoint
  std::int64_t step = 0;
  std::int64_t generation = 0;
  std::string save_id;
  [[nodiscard]] std::string path() const;
  bool operator==(const SaveTarget&) const = default;
};
[[nodiscard]] std::string encode_target(const SaveTarget& target);
[[nodiscard]] SaveTarget decode_target(std::string_view text);

// Creates `dir` if it is missing, removes unfinished saves of any step, and creates the step's
// directory. Throws CheckpointError if other files are in the way of that directory, and IoError.
[[nodiscard]] SaveTarget begin_save(FileSystem& files, const std::string& dir, std::int64_t step);

struct RankWriterOptions {
  std::int64_t block_bytes = kChecksumBlockBytes;
  std::int64_t staging_bytes = 4 << 20;     // small writes are gathered into writes of this size
  std::int64_t writeback_bytes = 16 << 20;  // write-back starts in windows of this size
};

// One rank's file. Different threads may write different ranges. The calls for one range are in
// order and from one thread at a time. Holds staging_bytes, and 8 bytes per block.
class RankWriter {
 public:
  // If `ranges` is empty, the file has only a header. Throws Error for a duplicate range or one
  // that does not fit its shape, and IoError.
  RankWriter(FileSystem& files, const SaveTarget& target, int rank,
             std::span<const StateRange> ranges, const RankWriterOptions& options = {});
  ~RankWriter();  // closes the file; without seal() it stays unfinished
  RankWriter(RankWriter&& other) noexcept;
  RankWriter& operator=(RankWriter&& other) noexcept;

  // Appends bytes to range number `range`. REQUIRES: whole elements. Little-endian, as in memory.
  void write(std::size_t range, std::span<const std::byte> bytes);
  [[nodiscard]] std::int64_t written_bytes() const;
  // Syncs file and directory and returns the record for commit(). Throws Error, which names the
  // range, if a range is not complete.
  [[nodiscard]] std::string seal();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Completes the checkpoint and points `latest` to it. `records`: the records of all ranks, in any
// order. Writes the files of run.tokenizer first. Throws CheckpointError if the records do not
// cover all parameters (check_manifest), or if rank 0 does not see the file of a rank. Ranks below
// `local_ranks` run on rank 0's host: a missing file of theirs was removed. After an exception the
// rename may or may not have happened: never purge then. If `latest` cannot be written, the log has
// a warning.
void commit(FileSystem& files, const SaveTarget& target, std::span<const std::string> records,
            const RunState& run, int local_ranks = std::numeric_limits<int>::max());

// Removes an unfinished save; a complete checkpoint stays. Never throws: the next begin_save()
// removes files that could not be removed.
void abandon_save(FileSystem& files, const SaveTarget& target) noexcept;

struct PurgeOptions {
  int keep = 2;                        // number of newest complete checkpoints that stay; 0: all
  std::vector<std::string> known_bad;  // refused at resume: they do not count as complete
};
// Removes the checkpoints that are older than the newest `keep` complete ones, and the unfinished
// ones that are older than the newest complete one. A damaged checkpoint does not count, and stays
// until `keep` newer ones are complete; if its manifest does not give its age, it counts as the
// oldest. A folder whose name says another step than its manifest stays for good. A warning names
// both. The manifest is removed first and durably, so a checkpoint that is half removed never looks
// complete. Returns the removed names.
std::vector<std::string> purge(FileSystem& files, const std::string& dir,
                               const PurgeOptions& options);

}  // namespace sluice
