// Blocks of a checkpoint's files, each compared with its checksum when it is read. Not thread-safe;
// holds one block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/file_system.hpp"
#include "runtime/checkpoint/manifest.hpp"

namespace sluice {

class BlockReader {
 public:
  // `manifest` outlives the reader.
  BlockReader(FileSystem& files, std::string dir, const Manifest& manifest);

  // Opens the file unless it is open, and compares size and header. Throws CheckpointError; where
  // the header is that of another rank, step or save, says so.
  void open(std::size_t file);
  void close(std::size_t file) { open_[file].reset(); }

  // The bytes of block number `block` of a range; they stay until the next call.
  [[nodiscard]] std::span<const std::byte> block(std::size_t file, std::size_t range,
                                                 std::int64_t block);
  // The same, read to `destination`, which is as long as the block.
  void block_to(std::size_t file, std::size_t range, std::int64_t block,
                std::span<std::byte> destination);
  [[nodiscard]] std::int64_t block_length(std::size_t file, std::size_t range,
                                          std::int64_t block) const;
  [[nodiscard]] std::string path(std::size_t file) const;

 private:
  FileSystem& files_;
  std::string dir_;
  const Manifest& manifest_;
  std::vector<std::unique_ptr<File>> open_;
  std::vector<std::byte> buffer_;
  std::size_t held_file_ = 0, held_range_ = 0;
  std::int64_t held_block_ = -1, held_bytes_ = 0;
};

}  // namespace sluice
