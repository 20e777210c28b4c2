#include "base/posix/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/posix/io_error.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWriteBuffer = 1 << 20;

// Unique over processes and threads: two writers of one path must not share a temporary file.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  return path + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(counter++);
}

std::string parent_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

// N of /dev/fd/N; -1: the path names no descriptor of this process.
int descriptor_of(const fs::path& path) {
  if (path.parent_path() != "/proc/self/fd" && path.parent_path() != "/dev/fd") return -1;
  const std::string name = path.filename();
  int number = -1;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && stop == name.data() + name.size() ? number : -1;
}

// The file or the descriptor (/dev/stdout is a link to one) that a chain of symbolic links names,
// whether that file exists or not.
std::string behind_links(const std::string& path) {
  constexpr int kMostLinks = 40;  // as Linux follows
  fs::path at = path;
  std::error_code error;
  for (int links = 0; links < kMostLinks && fs::is_symlink(fs::symlink_status(at, error));
       ++links) {
    if (descriptor_of(at) >= 0) break;
    const fs::path next = fs::read_symlink(at, error);
    if (error) break;
    at = at.parent_path() / next;  // an absolute `next` alone
  }
  return at.string();
}

void write_directly(int fd, const std::string& path, std::string_view text) {
  const int error = fd >= 0 ? write_fully(fd, std::as_bytes(std::span(text))) : errno;
  if (error != 0) throw_io_error("write", path, error, write_remedy(error));
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path)
    : path_(path),
      temporary_(temporary_name(path)),
      file_(open_descriptor(temporary_, O_RDWR | O_CREAT | O_EXCL)) {
  if (!file_) throw_io_error("write", path_, errno, write_remedy(errno));
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write_at(std::int64_t offset, std::span<const std::byte> bytes) {
  const int error = write_fully_at(file_.get(), bytes, offset);
  if (error == 0) return;
  throw_io_error("write", path_, error,
                 write_remedy(error) + " (stopped at " + format_bytes(offset) + ")");
}

void AtomicFile::flush() {
  write_at(written_, buffer_);
  written_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void AtomicFile::append(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kWriteBuffer) flush();
  if (bytes.size() > kWriteBuffer) {
    write_at(written_, bytes);
    written_ += static_cast<std::int64_t>(bytes.size());
  } else {
    if (buffer_.empty()) buffer_.reserve(kWriteBuffer);
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void AtomicFile::overwrite(std::int64_t offset, std::span<const std::byte> bytes) {
  flush();
  check(offset >= 0 && offset + static_cast<std::int64_t>(bytes.size()) <= written_,
        "AtomicFile::overwrite past the end");
  write_at(offset, bytes);
}

bool AtomicFile::commit(IfExists if_exists) {
  flush();
  // Pipes and devices cannot be synced (EINVAL).
  if (::fsync(file_.get()) != 0 && errno != EINVAL) {
    throw_io_error("write", path_, errno, write_remedy(errno));
  }
  if (!publish(if_exists)) return false;
  if (const int error = sync_folder(parent_of(path_))) throw_io_error("sync", path_, error);
  return true;
}

// False where the target exists and is to be kept.
bool AtomicFile::publish(IfExists if_exists) {
  if (if_exists == IfExists::kKeep) {
    if (::link(temporary_.c_str(), path_.c_str()) == 0) return true;
    // On a file system without hard links, the check and the move are two steps.
    if (errno == EEXIST || ::access(path_.c_str(), F_OK) == 0) return false;
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw_io_error("write", path_, errno, write_remedy(errno));
  }
  temporary_.clear();
  return true;
}

void AtomicFile::remove_leftovers(const std::string& path) {
  const std::string prefix = fs::path(path).filename().string() + ".tmp.";
  std::error_code ignored;
  for (fs::directory_iterator it(parent_of(path), ignored), end; it != end && !ignored;
       it.increment(ignored)) {
    if (it->path().filename().string().starts_with(prefix)) ::unlink(it->path().c_str());
  }
}

bool write_file_atomically(const std::string& path, std::string_view text, IfExists if_exists) {
  AtomicFile file(path);
  file.append(text);
  return file.commit(if_exists);
}

void write_output_file(const std::string& path, std::string_view text) {
  if (is_standard_output(path)) {
    std::fflush(nullptr);  // what the program has printed comes first
    return write_directly(STDOUT_FILENO, "standard output", text);
  }
  const std::string target = behind_links(path);
  if (const int number = descriptor_of(target); number >= 0) {
    std::fflush(nullptr);  // what the program has printed comes first
    return write_directly(number, path, text);
  }
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    write_directly(open_descriptor(path, O_WRONLY).get(), path, text);
  } else {
    write_file_atomically(target, text);
  }
}

}  // namespace sluice
