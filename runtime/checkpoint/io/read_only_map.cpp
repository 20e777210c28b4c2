#include "runtime/checkpoint/io/read_only_map.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace sluice {

ReadOnlyMap::ReadOnlyMap(std::string path) : path_(std::move(path)) {
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw IoError("cannot open " + path_ + ": " + std::strerror(errno), path_, errno);
  struct stat info {};
  int error = ::fstat(fd, &info) != 0 ? errno : 0;
  if (error == 0 && !S_ISREG(info.st_mode)) error = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
  void* begin = nullptr;
  const auto bytes = static_cast<std::size_t>(info.st_size);
  if (error == 0 && bytes > 0) {
    begin = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (begin == MAP_FAILED) error = errno;
  }
  ::close(fd);
  if (error != 0) {
    throw IoError("cannot map " + path_ + ": " + std::strerror(error), path_, error);
  }
  if (begin != nullptr) bytes_ = {static_cast<const std::byte*>(begin), bytes};
}

ReadOnlyMap::~ReadOnlyMap() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void let_go(std::span<const std::byte> mapped) {
  if (mapped.empty()) return;
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(mapped.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(mapped.data() + mapped.size());
  (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace sluice
