// A file that is being written. Adjacent small writes are gathered into large writes. Write-back
// runs behind the writer, who is at most three windows of writeback_bytes ahead of the disk, so
// that the final sync has little to do. Staged bytes have the same offset modulo a page in memory
// and in the file, so that their writes can bypass the page cache. Thread-safe.
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
  // Writes the staged bytes, then syncs.
  void sync();

 private:
  struct Window {
    std::int64_t offset = 0, bytes = 0;
  };
  [[nodiscard]] std::byte* staged() const;      // the first staged byte
  [[nodiscard]] std::int64_t capacity() const;  // bytes from staged() to the end of the buffer
  void flush();
  void write_through(std::int64_t offset, std::span<const std::byte> bytes);
  void start_window(Window window);

  std::unique_ptr<File> file_;
  std::mutex mutex_;
  // guarded by mutex_
  PageMemory buffer_;
  std::int64_t staged_offset_ = 0, staged_bytes_ = 0;
  std::int64_t staging_bytes_, writeback_bytes_;
  std::int64_t dirty_begin_ = 0, dirty_end_ = 0;  // written bytes whose write-back has not started
  std::array<Window, 2> under_way_;               // the last windows in write-back, older first
};

}  // namespace sluice
