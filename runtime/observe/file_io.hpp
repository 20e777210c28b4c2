// Files of a run that grow: logs, metrics, events. Every failure is an IoError that names the path,
// the system's cause and what to do. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "base/posix/descriptor.hpp"

namespace sluice {

// Writes every byte, however many calls it takes; throws IoError naming `path`.
void write_all(int fd, std::string_view bytes, const std::string& path);

// Writes at the end of the file, all of it or nothing: after an IoError the file ends where it did.
// `setting`: the key that names the folder, for the error.
void append_whole(int fd, std::string_view bytes, const std::string& path,
                  std::string_view setting = "output.dir");

// Opens for writing at the end (created with mode 0666 where it is missing); throws IoError.
[[nodiscard]] Descriptor open_for_append(const std::string& path);

// Moves a former `path` out of the way to `path`.N, the first number from 1 that is free. Nothing
// there: nothing happens. Throws IoError.
void keep_former_file(const std::string& path);

}  // namespace sluice
