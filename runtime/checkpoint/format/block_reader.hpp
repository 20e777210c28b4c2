// Reads blocks of a checkpoint's files and compares each block with its checksum. One thread calls
// block() and block_to(); the other functions are thread-safe. Holds one block of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/manifest.hpp"
#include "runtime/checkpoint/io/file_system.hpp"

namespace sluice {

class BlockReader {
 public:
  // `manifest` must outlive the reader.
  BlockReader(FileSystem& files, std::string dir, const Manifest& manifest);

  // Opens the file unless it is open. Compares its size and, the first time, its header. Throws
  // CheckpointError, which says if the header belongs to another rank, step or save. The reader
  // keeps at most kMostOpen files open; a returned file stays open while the caller holds it.
  std::shared_ptr<File> open(std::size_t file);

  // The bytes of block number `block` of a range; valid until the next call.
  [[nodiscard]] std::span<const std::byte> block(std::size_t file, std::size_t range,
                                                 std::int64_t block);
  // Reads the block to `destination`, which has the length of the block.
  void block_to(std::size_t file, std::size_t range, std::int64_t block,
                std::span<std::byte> destination);
  // Throws CheckpointError unless `got`, the result of reading the block, is complete and matches
  // the block's checksum.
  void compare(std::size_t file, std::size_t range, std::int64_t block,
               std::span<const std::byte> got) const;
  // Rethrows the error of a read. Adds tensor and offset to an IoError of the system.
  [[noreturn]] void rethrow(const std::exception_ptr& error, std::size_t file, std::size_t range,
                            std::int64_t offset) const;
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] std::int64_t block_length(std::size_t file, std::size_t range,
                                          std::int64_t block) const;
  [[nodiscard]] std::string path(std::size_t file) const;

 private:
  FileSystem& files_;
  std::string dir_;
  const Manifest& manifest_;
  static constexpr std::size_t kMostOpen = 32;
  std::mutex mutex_;
  // guarded by mutex_
  std::vector<std::shared_ptr<File>> open_;  // by file; null: the file is not open
  std::deque<std::size_t> opened_;           // the open files, in the order of opening
  std::vector<bool> known_;                  // by file: the header has been compared
  std::vector<std::byte> buffer_;
  std::size_t held_file_ = 0, held_range_ = 0;
  std::int64_t held_block_ = -1, held_bytes_ = 0;
};

}  // namespace sluice
