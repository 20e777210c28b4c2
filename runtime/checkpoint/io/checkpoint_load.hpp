// Reading a complete checkpoint on any layout. A rank names the ranges it wants; plan_reads finds
// where they lie; read() fetches the blocks they touch, checks each block's checksum and puts the
// elements in place, converting between F32, BF16 and F16 where dtypes differ.
//
// open_checkpoint reads the manifest and checks that every file is there with its size (unless told
// that another rank did); contents are checked as they are read (or all of them, by verify in
// checkpoint_catalog.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {

// What one stored range gives to one wanted range.
struct ReadPiece {
  std::size_t wanted = 0;  // index into the ranges asked for
  std::size_t file = 0;    // index into manifest.files
  std::size_t range = 0;   // index into that file's ranges
  SharedRuns runs;         // from: elements of the stored range, to: of the wanted one
};

// What read_in_parts has brought: elements [first, first + elems) of one wanted range.
struct StatePart {
  std::size_t wanted = 0;
  std::int64_t first = 0, elems = 0;
  std::span<std::byte> bytes;  // until the next part
};

// One open checkpoint. plan_reads is const and thread-safe; reading is for one thread at a time
// (open the checkpoint once for each reader). Holds one block of memory, 1 MiB, and the manifest.
class Checkpoint {
 public:
  Checkpoint(FileSystem& files, std::string path, Manifest manifest);
  ~Checkpoint();
  Checkpoint(Checkpoint&& other) noexcept;
  Checkpoint& operator=(Checkpoint&& other) noexcept;

  [[nodiscard]] const std::string& path() const;
  [[nodiscard]] const Manifest& manifest() const;
  // Every parameter's master as one whole range, in order of name: names, shapes, dtypes.
  [[nodiscard]] const std::vector<StateRange>& parameters() const;
  [[nodiscard]] bool has(const std::string& param, StateKind kind) const;

  // By file and offset, so that reading is sequential. The dtype of a wanted range is that of its
  // destination. Throws CheckpointError naming parameter and range: not in the checkpoint, of
  // another shape, not convertible.
  [[nodiscard]] std::vector<ReadPiece> plan_reads(std::span<const StateRange> wanted) const;
  // Bytes that read() will fetch for these pieces: whole blocks.
  [[nodiscard]] std::int64_t bytes_to_read(std::span<const ReadPiece> pieces) const;
  // destinations[i] takes wanted[i], wanted[i].bytes() long. Throws CheckpointError with file,
  // tensor and offset for the first block that is not what was written; destinations are then
  // undefined. To restore in bounded memory, ask for parts of a range (a smaller [begin, end)).
  void read(std::span<const ReadPiece> pieces, std::span<const StateRange> wanted,
            std::span<const std::span<std::byte>> destinations);
  // The wanted ranges one after the other, in parts of as many elements as `part` holds (at least
  // one): take(part) is called, on this thread, for each in order, while the disk is read for those
  // behind it: past the page cache where the checkpoint is read once, by threads that do not
  // outlive this call. `ahead`: memory for what they have read, from a page on, read_ahead_bytes
  // (read_ahead.hpp) to keep a disk busy; with too little, blocks are read when they are needed.
  // Besides, 32 bytes for each block that is to be read. Throws as plan_reads, read and take.
  void read_in_parts(std::span<const StateRange> wanted, std::span<std::byte> part,
                     std::span<std::byte> ahead, const std::function<void(const StatePart&)>& take);
  // plan_reads and read of one range.
  void read_range(const StateRange& wanted, std::span<std::byte> destination);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// kManifest: for a rank beside one that has looked at the files, so that n ranks do not ask for the
// sizes of n files each. A file that is missing or too short is then an error of the first read of
// it.
enum class OpenCheck { kFiles, kManifest };

// Where the checkpoints of a run's folder (output.dir) are, unless checkpoint.dir is another.
inline constexpr const char* kRunCheckpoints = "checkpoints";
// `path` itself; where it is a run's folder and neither a checkpoint nor a folder of them, the
// folder of checkpoints in it.
[[nodiscard]] std::string checkpoints_in(FileSystem& files, const std::string& path);

// `path`: a step's directory, or a directory of checkpoints (the newest by generation), or a run's
// folder (the newest of its). Throws CheckpointError or IoError saying what is wrong; a directory
// without a manifest was never completed.
[[nodiscard]] Checkpoint open_checkpoint(FileSystem& files, const std::string& path,
                                         OpenCheck check = OpenCheck::kFiles);

}  // namespace sluice
