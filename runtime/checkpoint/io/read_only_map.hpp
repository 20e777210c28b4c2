// A file mapped read-only. Thread-safe. A file that somebody cuts short while it is mapped raises
// SIGBUS.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace sluice {

class ReadOnlyMap {
 public:
  explicit ReadOnlyMap(std::string path);  // throws IoError; an empty file has no bytes
  ~ReadOnlyMap();
  ReadOnlyMap(const ReadOnlyMap&) = delete;
  ReadOnlyMap& operator=(const ReadOnlyMap&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

// What was read stays in the page cache, and no longer counts as this process's memory.
void let_go(std::span<const std::byte> mapped);

}  // namespace sluice
