// Blocks of a checkpoint's files, each compared with its checksum when it is read. block() and
// block_to() are for one thread, the others thread-safe. Holds one block.
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
  // `manifest` outlives the reader.
  BlockReader(FileSystem& files, std::string dir, const Manifest& manifest);

  // Opens the file unless it is open, and compares size and, the first time, header. Throws
  // CheckpointError; where the header is that of another rank, step or save, says so. At most
  // kMostOpen files stay open, however many ranks saved; what is returned stays open besides.
  std::shared_ptr<File> open(std::size_t file);

  // The bytes of block number `block` of a range; they stay until the next call.
  [[nodiscard]] std::span<const std::byte> block(std::size_t file, std::size_t range,
                                                 std::int64_t block);
  // The same, read to `destination`, which is as long as the block.
  void block_to(std::size_t file, std::size_t range, std::int64_t block,
                std::span<std::byte> destination);
  // Throws CheckpointError unless `got`, what a read of this block has brought, is the whole of it
  // and what was written.
  void compare(std::size_t file, std::size_t range, std::int64_t block,
               std::span<const std::byte> got) const;
  // What a read threw; an IoError of the system with the tensor and offset that it was for.
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
  std::vector<std::shared_ptr<File>> open_;  // by file; null: it is not
  std::deque<std::size_t> opened_;           // those that are, in the order in which they were
  std::vector<bool> known_;                  // whose header has been compared
  std::vector<std::byte> buffer_;
  std::size_t held_file_ = 0, held_range_ = 0;
  std::int64_t held_block_ = -1, held_bytes_ = 0;
};

}  // namespace sluice
