// A file that readers see whole or not at all. The file is written beside its target, under
// <path>.tmp.<pid>.<n>; commit() syncs it, renames it to the target and syncs the folder. Errors
// are IoErrors with path, cause and remedy. Not thread-safe; several processes may write one path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/posix/descriptor.hpp"

namespace sluice {

enum class IfExists { kReplace, kKeep };

// Without commit(), the destructor removes the temporary file.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
  // Replaces bytes already appended at `offset`.
  void overwrite(std::int64_t offset, std::span<const std::byte> bytes);
  [[nodiscard]] std::int64_t size() const {
    return written_ + static_cast<std::int64_t>(buffer_.size());
  }
  // kKeep: a target that exists stays as it is, and the result is false.
  bool commit(IfExists if_exists = IfExists::kReplace);

  // Removes the temporary files of `path` that killed processes left. REQUIRES: nobody writes it.
  static void remove_leftovers(const std::string& path);

 private:
  void flush();
  void write_at(std::int64_t offset, std::span<const std::byte> bytes);
  bool publish(IfExists if_exists);

  std::string path_, temporary_;
  Descriptor file_;
  std::vector<std::byte> buffer_;
  std::int64_t written_ = 0;  // without buffer_
};

// One text as a whole file. False where kKeep kept the file that was there.
bool write_file_atomically(const std::string& path, std::string_view text,
                           IfExists if_exists = IfExists::kReplace);

// One text where a user asked for it (-o, --html). A device, a pipe or an open descriptor
// (/dev/stdout) is written, never replaced. A symbolic link stays: the file that it names is
// replaced as a whole. "-" is standard output. Throws IoError.
void write_output_file(const std::string& path, std::string_view text);
[[nodiscard]] inline bool is_standard_output(std::string_view path) { return path == "-"; }

}  // namespace sluice
