#include "runtime/checkpoint/staged_file.hpp"

#include <algorithm>
#include <utility>

namespace sluice {

StagedFile::StagedFile(FileSystem& files, const std::string& path, std::int64_t staging_bytes,
                       std::int64_t writeback_bytes)
    : file_(files.create(path)),
      staging_bytes_(std::max<std::int64_t>(staging_bytes, 1)),
      writeback_bytes_(std::max<std::int64_t>(writeback_bytes, 1)) {
  staged_.reserve(static_cast<std::size_t>(staging_bytes_));
}

void StagedFile::write(std::int64_t offset, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (offset != staged_offset_ + static_cast<std::int64_t>(staged_.size())) flush();
  while (!bytes.empty()) {
    if (staged_.empty()) {
      staged_offset_ = offset;
      // A whole staging buffer or more goes to the system as it is.
      const std::size_t direct = bytes.size() - bytes.size() % staged_.capacity();
      if (direct > 0) write_through(offset, bytes.first(direct));
      bytes = bytes.subspan(direct);
      staged_offset_ += static_cast<std::int64_t>(direct);
      offset = staged_offset_;
    }
    const std::size_t take = std::min(bytes.size(), staged_.capacity() - staged_.size());
    staged_.insert(staged_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(take));
    bytes = bytes.subspan(take);
    offset += static_cast<std::int64_t>(take);
    if (staged_.size() == staged_.capacity()) flush();
  }
}

void StagedFile::sync() {
  const std::lock_guard lock(mutex_);
  flush();
  file_->sync();
}

void StagedFile::flush() {
  if (staged_.empty()) return;
  write_through(staged_offset_, staged_);
  staged_offset_ += static_cast<std::int64_t>(staged_.size());
  staged_.clear();
}

void StagedFile::write_through(std::int64_t offset, std::span<const std::byte> bytes) {
  // In steps, so that the disk starts on the first while the next is copied.
  while (!bytes.empty()) {
    const auto take = static_cast<std::size_t>(std::min(
        static_cast<std::int64_t>(bytes.size()), std::max(writeback_bytes_, staging_bytes_)));
    file_->write(offset, bytes.first(take));
    if (offset != dirty_end_) dirty_begin_ = offset;
    offset += static_cast<std::int64_t>(take);
    dirty_end_ = offset;
    bytes = bytes.subspan(take);
    if (dirty_end_ - dirty_begin_ >= writeback_bytes_) {
      start_window({dirty_begin_, dirty_end_ - dirty_begin_});
      dirty_begin_ = dirty_end_;
    }
  }
}

void StagedFile::start_window(Window window) {
  // Asking throttles nobody: without the wait, what the disk has not taken would pile up in memory
  // and the sync would pay for all of it.
  const Window oldest = std::exchange(under_way_[0], std::exchange(under_way_[1], window));
  if (oldest.bytes > 0) file_->wait_for_writeback(oldest.offset, oldest.bytes);
  file_->start_writeback(window.offset, window.bytes);
}

}  // namespace sluice
