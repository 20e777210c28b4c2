#include "runtime/checkpoint/io/staged_file.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sluice {

StagedFile::StagedFile(FileSystem& files, const std::string& path, std::int64_t staging_bytes,
                       std::int64_t writeback_bytes)
    : file_(files.create(path)),
      buffer_(staging_bytes),
      staging_bytes_(std::max<std::int64_t>(staging_bytes, 1)),
      writeback_bytes_(std::max<std::int64_t>(writeback_bytes, 1)) {}

std::byte* StagedFile::staged() const { return buffer_.data() + staging_bytes_ - capacity(); }

std::int64_t StagedFile::capacity() const {
  const bool in_pages = staging_bytes_ % kPageBytes == 0 && staging_bytes_ > kPageBytes;
  return staging_bytes_ - (in_pages ? staged_offset_ % kPageBytes : 0);
}

void StagedFile::write(std::int64_t offset, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (offset != staged_offset_ + staged_bytes_) flush();
  while (!bytes.empty()) {
    if (staged_bytes_ == 0) {
      staged_offset_ = offset;
      // Multiples of the staging buffer are written without staging.
      const auto whole = static_cast<std::size_t>(staging_bytes_);
      const std::size_t direct = bytes.size() - bytes.size() % whole;
      if (direct > 0) write_through(offset, bytes.first(direct));
      bytes = bytes.subspan(direct);
      offset += static_cast<std::int64_t>(direct);
      staged_offset_ = offset;
      if (bytes.empty()) return;
    }
    const std::int64_t take =
        std::min(static_cast<std::int64_t>(bytes.size()), capacity() - staged_bytes_);
    std::memcpy(staged() + staged_bytes_, bytes.data(), static_cast<std::size_t>(take));
    staged_bytes_ += take;
    bytes = bytes.subspan(static_cast<std::size_t>(take));
    offset += take;
    if (staged_bytes_ == capacity()) flush();
  }
}

void StagedFile::sync() {
  const std::lock_guard lock(mutex_);
  flush();
  file_->sync();
}

void StagedFile::flush() {
  if (staged_bytes_ == 0) return;
  write_through(staged_offset_, {staged(), static_cast<std::size_t>(staged_bytes_)});
  staged_offset_ += staged_bytes_;
  staged_bytes_ = 0;
}

void StagedFile::write_through(std::int64_t offset, std::span<const std::byte> bytes) {
  // Writes in steps, so that the disk writes one step while the next is copied.
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
  // start_writeback() does not block. Without this wait, dirty pages would pile up in memory and
  // the final sync would have to write all of them.
  const Window oldest = std::exchange(under_way_[0], std::exchange(under_way_[1], window));
  if (oldest.bytes > 0) file_->wait_for_writeback(oldest.offset, oldest.bytes);
  file_->start_writeback(window.offset, window.bytes);
}

}  // namespace sluice
