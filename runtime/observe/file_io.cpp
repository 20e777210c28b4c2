#include "runtime/observe/file_io.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <span>

#include "base/posix/io_error.hpp"

namespace sluice {
namespace {

[[noreturn]] void fail(std::string_view action, const std::string& path, int error,
                       std::string_view setting = "output.dir") {
  throw_io_error(action, path, error, write_remedy(error, setting));
}

}  // namespace

void write_all(int fd, std::string_view bytes, const std::string& path) {
  if (const int error = write_fully(fd, std::as_bytes(std::span(bytes)))) {
    fail("write", path, error);
  }
}

void append_whole(int fd, std::string_view bytes, const std::string& path,
                  std::string_view setting) {
  const off_t end = ::lseek(fd, 0, SEEK_END);
  if (const int error = write_fully(fd, std::as_bytes(std::span(bytes)))) {
    // Best effort: a device such as a pipe has no length to go back to.
    [[maybe_unused]] const int cut = end >= 0 ? ::ftruncate(fd, end) : 0;
    fail("write", path, error, setting);
  }
}

Descriptor open_for_append(const std::string& path) {
  Descriptor file = open_descriptor(path, O_WRONLY | O_CREAT | O_APPEND);
  if (!file) fail("open", path, errno);
  return file;
}

void keep_former_file(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return;
  for (int number = 1;; ++number) {
    const std::string former = path + "." + std::to_string(number);
    if (::access(former.c_str(), F_OK) == 0) continue;
    if (errno != ENOENT) fail("move aside", path, errno);
    if (std::rename(path.c_str(), former.c_str()) != 0 && errno != ENOENT) {
      fail("move aside", path, errno);
    }
    return;
  }
}

}  // namespace sluice
