// Descriptors and small files written so that a reader never sees half of one. Every failure is an
// IoError that names the path, the system's cause and what to do. UniqueFd is not thread-safe, the
// functions are.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace sluice {

// Owns one file descriptor; -1 is none.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// "cannot <action> <path>: <cause>; <remedy>" for this errno.
[[noreturn]] void throw_io_error(std::string_view action, const std::string& path,
                                 int error_number);

// Writes every byte, however many calls it takes; throws IoError naming `path`.
void write_all(int fd, std::string_view bytes, const std::string& path);

// Writes at the end of the file, all of it or nothing: after an IoError the file ends where it did.
void append_whole(int fd, std::string_view bytes, const std::string& path);

// Opens for writing at the end (created with mode 0666 where it is missing); throws IoError.
[[nodiscard]] UniqueFd open_for_append(const std::string& path);

enum class IfExists { kReplace, kKeep };

// Writes a sibling file, syncs it and moves it to `path` in one step. kKeep: a file that is already
// there stays as it is and the result is false. Throws IoError; then nothing is left behind.
bool write_file_atomically(const std::string& path, std::string_view bytes,
                           IfExists if_exists = IfExists::kReplace);

// Moves a former `path` out of the way to `path`.1 (replacing an older one). Nothing there: nothing
// happens. Throws IoError.
void keep_former_file(const std::string& path);

}  // namespace sluice
