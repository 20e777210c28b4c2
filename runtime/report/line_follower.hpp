// Follows a file of lines that another process appends to. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace sluice {

class LineFollower {
 public:
  explicit LineFollower(std::string path) : path_(std::move(path)) {}

  struct Handlers {
    // A whole line without its line break; `number` counts from 1.
    std::function<void(std::string_view line, std::int64_t number)> line;
    // The line is longer than kMostLine and was passed over.
    std::function<void(std::int64_t number)> too_long;
    // The file is another one, or was cut: its lines come again from the first.
    std::function<void()> anew;
  };
  // Reads the lines that were written since the last call. A last line without a line break waits
  // for its end. Returns whether anything changed. A missing file has no lines. Throws IoError if
  // the file cannot be read.
  bool read(const Handlers& handlers);

  [[nodiscard]] bool exists() const { return exists_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  static constexpr std::size_t kMostLine = std::size_t{1} << 20;

 private:
  bool look(int fd, const Handlers& handlers);
  void take(std::string_view bytes, const Handlers& handlers);

  std::string path_;
  bool exists_ = false;
  std::uint64_t device_ = 0, inode_ = 0;
  std::int64_t offset_ = 0;  // bytes read
  std::int64_t number_ = 0;  // lines taken
  std::string rest_;         // of the line that has no end yet
  bool skipping_ = false;    // the line that has no end yet is too long
};

}  // namespace sluice
