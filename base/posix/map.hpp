// Memory that the kernel maps: pages of their own, pages of a descriptor, a whole file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace sluice {

// Owns mapped pages and unmaps them at the end. None where the kernel refuses, with errno.
class MappedPages {
 public:
  MappedPages() = default;
  MappedPages(MappedPages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MappedPages& operator=(MappedPages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  MappedPages(const MappedPages&) = delete;
  MappedPages& operator=(const MappedPages&) = delete;
  ~MappedPages();

  // Private zeros that begin at a multiple of `alignment`: a page, or a power of two of pages.
  // Pages are taken when first written.
  [[nodiscard]] static MappedPages anonymous(std::int64_t bytes, std::int64_t alignment);
  // The first bytes of a file, shared with everybody who maps them.
  [[nodiscard]] static MappedPages shared(int fd, std::int64_t bytes, bool writable);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }
  // The caller unmaps the pages.
  [[nodiscard]] std::byte* release();

 private:
  MappedPages(std::byte* data, std::int64_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

// A whole file, mapped read-only. Thread-safe after construction. A file that is truncated while it
// is mapped raises SIGBUS when its lost pages are read: files in use are replaced by rename
// (AtomicFile), never truncated.
class MappedFile {
 public:
  explicit MappedFile(std::string path);  // throws IoError; an empty file has no bytes

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {pages_.data(), static_cast<std::size_t>(pages_.bytes())};
  }

 private:
  std::string path_;
  MappedPages pages_;
};

// Removes the pages of a file mapping from this process's resident memory. The page cache keeps
// the pages. REQUIRES: `mapped` lies in a MappedFile or in shared(); private pages would be lost.
void let_go(std::span<const std::byte> mapped);

}  // namespace sluice
