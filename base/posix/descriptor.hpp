// File descriptors with one owner, and the calls on descriptors that need a loop or several steps.
//
// Functions report failure by errno: the caller knows what the file is for and throws an error that
// says so (io_error.hpp). A Descriptor belongs to one thread at a time; the functions are
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace sluice {

// Closes the descriptor at the end. -1 is none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);  // keeps errno

 private:
  int fd_ = -1;
};

// open(2) with O_CLOEXEC. None, with errno, where open(2) fails.
[[nodiscard]] Descriptor open_descriptor(const std::string& path, int flags, unsigned mode = 0666);
// A memfd of `bytes` zeros, close-on-exec. None, with errno, where the kernel refuses it.
[[nodiscard]] Descriptor make_memfd(const char* name, std::int64_t bytes);

// Write all bytes, at the position of the descriptor or at `offset`. 0, or errno; ENOSPC where the
// file takes no byte more. `offset` ends behind the last byte written, also after a failure.
[[nodiscard]] int write_fully(int fd, std::span<const std::byte> bytes);
[[nodiscard]] int write_fully_at(int fd, std::span<const std::byte> bytes, std::int64_t& offset);

// Appends all bytes from the descriptor's position to the end: of a file, a pipe, a device. 0, or
// errno.
[[nodiscard]] int read_to_end(int fd, std::string& text);

// Makes the names in a folder survive a power failure. 0, or errno. File systems whose folders
// cannot be synced (EINVAL) have no need of the call.
[[nodiscard]] int sync_folder(const std::string& path);

}  // namespace sluice
