// A file under way: small writes that follow each other are gathered into large ones, and the disk
// is kept busy behind the writer, which is at most three windows of writeback_bytes ahead of it, so
// that the sync at the end has little left to do. What is staged lies in memory as it does in the
// file, modulo a page, so that it can go there past the page cache. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "runtime/checkpoint/io/file_system.hpp"
#include "runtime/checkpoint/io/page_memory.hpp"

namespace sluice {

class StagedFile {
 public:
  StagedFile(FileSystem& files, const std::string& path, std::int64_t staging_bytes,
             std::int64_t writeback_bytes);
  void write(std::int64_t offset, std::span<const std::byte> bytes);
  // Writes what is staged, then syncs.
  void sync();

 private:
  struct Window {
    std::int64_t offset = 0, bytes = 0;
  };
  [[nodiscard]] std::byte* staged() const;      // the first of staged_bytes_
  [[nodiscard]] std::int64_t capacity() const;  // from staged() on
  void flush();
  void write_through(std::int64_t offset, std::span<const std::byte> bytes);
  void start_window(Window window);

  std::unique_ptr<File> file_;
  std::mutex mutex_;
  // guarded by mutex_
  PageMemory buffer_;
  std::int64_t staged_offset_ = 0, staged_bytes_ = 0;
  std::int64_t staging_bytes_, writeback_bytes_;
  std::int64_t dirty_begin_ = 0, dirty_end_ = 0;  // one run of bytes the disk was not asked for
  std::array<Window, 2> under_way_;               // that it was asked for last, the older first
};

}  // namespace sluice
