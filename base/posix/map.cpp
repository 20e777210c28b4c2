#include "base/posix/map.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/posix/descriptor.hpp"
#include "base/posix/io_error.hpp"

namespace sluice {
namespace {

std::int64_t page_bytes() {
  static const std::int64_t bytes = ::sysconf(_SC_PAGESIZE);
  return bytes;
}

std::byte* map(std::int64_t bytes, int protection, int flags, int fd) {
  void* const at = ::mmap(nullptr, static_cast<std::size_t>(bytes), protection, flags, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

void unmap(std::byte* data, std::int64_t bytes) {
  if (bytes > 0) ::munmap(data, static_cast<std::size_t>(bytes));
}

}  // namespace

MappedPages::~MappedPages() { unmap(data_, bytes_); }

MappedPages MappedPages::anonymous(std::int64_t bytes, std::int64_t alignment) {
  const std::int64_t page = page_bytes();
  const std::int64_t size = (bytes + page - 1) / page * page;
  const std::int64_t slack = alignment > page ? alignment - page : 0;
  std::byte* const begin =
      map(size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (begin == nullptr) return {};
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin) %
                                              static_cast<std::uintptr_t>(alignment));
  const std::int64_t head = past == 0 || slack == 0 ? 0 : alignment - past;
  unmap(begin, head);
  unmap(begin + head + size, slack - head);
  return {begin + head, bytes};
}

MappedPages MappedPages::shared(int fd, std::int64_t bytes, bool writable) {
  std::byte* const begin =
      map(bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd);
  if (begin == nullptr) return {};
  return {begin, bytes};
}

std::byte* MappedPages::release() {
  bytes_ = 0;
  return std::exchange(data_, nullptr);
}

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const Descriptor file = open_descriptor(path_, O_RDONLY);
  if (!file) throw_io_error("open", path_, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) throw_io_error("look at", path_, errno);
  if (!S_ISREG(info.st_mode)) throw IoError(path_ + " is not a regular file", path_, EINVAL);
  if (info.st_size == 0) return;
  pages_ = MappedPages::shared(file.get(), info.st_size, /*writable=*/false);
  if (!pages_) throw_io_error("map", path_, errno);
}

void let_go(std::span<const std::byte> mapped) {
  if (mapped.empty()) return;
  const auto page = static_cast<std::uintptr_t>(page_bytes());
  const auto begin = reinterpret_cast<std::uintptr_t>(mapped.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(mapped.data() + mapped.size());
  (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace sluice
