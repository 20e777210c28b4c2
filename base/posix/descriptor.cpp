#include "base/posix/descriptor.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace sluice {
namespace {

// `write_some` writes a part of what it is given, as write(2) does.
template <typename WriteSome>
int write_all_parts(std::span<const std::byte> bytes, const WriteSome& write_some) {
  while (!bytes.empty()) {
    const ssize_t count = write_some(bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return ENOSPC;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return 0;
}

}  // namespace

void Descriptor::reset(int fd) {
  const int error = errno;
  if (fd_ >= 0) ::close(fd_);
  errno = error;
  fd_ = fd;
}

Descriptor open_descriptor(const std::string& path, int flags, unsigned mode) {
  return Descriptor(::open(path.c_str(), flags | O_CLOEXEC, static_cast<mode_t>(mode)));
}

Descriptor make_memfd(const char* name, std::int64_t bytes) {
  Descriptor made(::memfd_create(name, MFD_CLOEXEC));
  if (made && ::ftruncate(made.get(), bytes) != 0) made.reset();
  return made;
}

int write_fully(int fd, std::span<const std::byte> bytes) {
  return write_all_parts(bytes, [fd](std::span<const std::byte> rest) {
    return ::write(fd, rest.data(), rest.size());
  });
}

int write_fully_at(int fd, std::span<const std::byte> bytes, std::int64_t& offset) {
  return write_all_parts(bytes, [fd, &offset](std::span<const std::byte> rest) {
    const ssize_t count = ::pwrite(fd, rest.data(), rest.size(), offset);
    if (count > 0) offset += count;
    return count;
  });
}

int read_to_end(int fd, std::string& text) {
  constexpr std::size_t kPart = 1 << 16;
  while (true) {
    const std::size_t before = text.size();
    text.resize(before + kPart);
    const ssize_t count = ::read(fd, text.data() + before, kPart);
    text.resize(before + (count > 0 ? static_cast<std::size_t>(count) : 0));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : 0;
  }
}

int sync_folder(const std::string& path) {
  const Descriptor folder = open_descriptor(path, O_RDONLY | O_DIRECTORY);
  if (!folder) return errno;
  return ::fsync(folder.get()) == 0 || errno == EINVAL ? 0 : errno;
}

}  // namespace sluice
