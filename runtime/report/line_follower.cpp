#include "runtime/report/line_follower.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/posix/descriptor.hpp"
#include "base/posix/io_error.hpp"

namespace sluice {
namespace {

[[noreturn]] void fail(const std::string& path) {
  throw_io_error("read", path, errno, "; check that it is a file, and may be read");
}

}  // namespace

bool LineFollower::read(const Handlers& handlers) {
  const Descriptor file = open_descriptor(path_, O_RDONLY);
  if (!file) {
    if (errno != ENOENT && errno != ENOTDIR) fail(path_);
    const bool vanished = exists_;
    exists_ = false;
    return vanished;  // between two files of a resumed run: the lines stay until the new file
  }
  bool changed = look(file.get(), handlers);
  std::vector<char> buffer(std::size_t{1} << 20);
  while (true) {
    const ssize_t got = ::pread(file.get(), buffer.data(), buffer.size(), offset_);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_);
    if (got == 0) return changed;
    offset_ += got;
    changed = true;
    take({buffer.data(), static_cast<std::size_t>(got)}, handlers);
  }
}

bool LineFollower::look(int fd, const Handlers& handlers) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail(path_);
  const bool first = device_ == 0 && inode_ == 0;
  const bool same = device_ == info.st_dev && inode_ == info.st_ino && info.st_size >= offset_;
  const bool appeared = !exists_;
  exists_ = true;
  if (same) return appeared;
  device_ = info.st_dev;
  inode_ = info.st_ino;
  offset_ = number_ = 0;
  rest_.clear();
  skipping_ = false;
  if (!first) handlers.anew();
  return true;
}

void LineFollower::take(std::string_view bytes, const Handlers& handlers) {
  while (true) {
    const std::size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (!skipping_ && rest_.size() + part.size() > kMostLine) {
      skipping_ = true;
      rest_.clear();
    }
    if (end == std::string_view::npos) {
      if (!skipping_) rest_ += part;
      return;
    }
    ++number_;
    if (skipping_) {
      handlers.too_long(number_);
    } else if (rest_.empty()) {
      handlers.line(part, number_);
    } else {
      rest_ += part;
      handlers.line(rest_, number_);
    }
    rest_.clear();
    skipping_ = false;
    bytes.remove_prefix(end + 1);
  }
}

}  // namespace sluice
