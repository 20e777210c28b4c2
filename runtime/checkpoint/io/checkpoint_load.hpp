// Reads a complete checkpoint on any layout. A rank names the ranges that it wants. plan_reads
// finds the stored ranges that overlap them. read() reads the touched blocks, checks the checksum
// of each block, and copies the elements, with conversion between F32, BF16 and F16.
//
// open_checkpoint reads the manifest and checks that every file exists with its size (unless
// another rank has done so). Contents are checked when they are read, or all at once by verify()
// (checkpoint_catalog.hpp).
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

// The overlap of one stored range with one wanted range.
struct ReadPiece {
  std::size_t wanted = 0;  // index into the wanted ranges
  std::size_t file = 0;    // index into manifest.files
  std::size_t range = 0;   // index into that file's ranges
  SharedRuns runs;         // from: elements of the stored range, to: of the wanted one
};

// A part that read_in_parts has read: elements [first, first + elems) of one wanted range.
struct StatePart {
  std::size_t wanted = 0;
  std::int64_t first = 0, elems = 0;
  std::span<std::byte> bytes;  // valid until the next part
};

// One open checkpoint. plan_reads is thread-safe. One thread at a time may read; open the
// checkpoint once for each reader. Holds one block of memory (1 MiB) and the manifest.
class Checkpoint {
 public:
  Checkpoint(FileSystem& files, std::string path, Manifest manifest);
  ~Checkpoint();
  Checkpoint(Checkpoint&& other) noexcept;
  Checkpoint& operator=(Checkpoint&& other) noexcept;

  [[nodiscard]] const std::string& path() const;
  [[nodiscard]] const Manifest& manifest() const;
  // The master weights of every parameter as one whole range each, ordered by name.
  [[nodiscard]] const std::vector<StateRange>& parameters() const;
  [[nodiscard]] bool has(const std::string& param, StateKind kind) const;

  // Returns the pieces ordered by file and offset, so that reading is sequential. The dtype of a
  // wanted range is the dtype of its destination. Throws CheckpointError, which names parameter and
  // range, if a range is missing, has another shape, or cannot be converted.
  [[nodiscard]] std::vector<ReadPiece> plan_reads(std::span<const StateRange> wanted) const;
  // Bytes that read() reads for these pieces; whole blocks.
  [[nodiscard]] std::int64_t bytes_to_read(std::span<const ReadPiece> pieces) const;
  // Reads wanted[i] to destinations[i], which has wanted[i].bytes() bytes. Throws CheckpointError
  // with file, tensor and offset for the first block with a wrong checksum; the contents of
  // destinations are then undefined. To bound the memory, ask for parts of a range (a smaller
  // [begin, end)).
  void read(std::span<const ReadPiece> pieces, std::span<const StateRange> wanted,
            std::span<const std::span<std::byte>> destinations);
  // Reads the wanted ranges in order, in parts of as many elements as `part` holds (at least one).
  // Calls take(part) on this thread for each part, while other threads read the following parts.
  // The threads end with this call, and read past the page cache what is read only once. `ahead`:
  // page-aligned memory for the parts that are read ahead; read_ahead_bytes (read_ahead.hpp) keeps
  // a disk busy. With less memory, blocks are read when they are needed. Needs 32 more bytes per
  // block. Throws the errors of plan_reads, read and take.
  void read_in_parts(std::span<const StateRange> wanted, std::span<std::byte> part,
                     std::span<std::byte> ahead, const std::function<void(const StatePart&)>& take);
  // plan_reads and read of one range.
  void read_range(const StateRange& wanted, std::span<std::byte> destination);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// kManifest: another rank has checked the files already, so n ranks need not ask for the sizes of n
// files each. A missing or short file is then an error of its first read.
enum class OpenCheck { kFiles, kManifest };

// The folder of checkpoints within a run's folder (output.dir), unless checkpoint.dir names
// another.
inline constexpr const char* kRunCheckpoints = "checkpoints";
// Returns the folder of checkpoints within `path` if `path` is a run's folder, but neither a
// checkpoint nor a folder of checkpoints. Returns `path` otherwise.
[[nodiscard]] std::string checkpoints_in(FileSystem& files, const std::string& path);

// Throws CheckpointError if the name of a step's directory says another step than its manifest.
void check_folder_name(FileSystem& files, const std::string& dir, const Manifest& manifest);

// `path`: a step's directory, a directory of checkpoints, or a run's folder; the last two open the
// newest checkpoint by generation. Throws CheckpointError or IoError. A directory without a
// manifest was never completed.
[[nodiscard]] Checkpoint open_checkpoint(FileSystem& files, const std::string& path,
                                         OpenCheck check = OpenCheck::kFiles);

}  // namespace sluice
