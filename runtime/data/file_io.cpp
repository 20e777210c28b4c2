#include "runtime/data/file_io.hpp"

#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/posix/descriptor.hpp"
#include "base/posix/io_error.hpp"
#include "base/posix/map.hpp"

namespace sluice {

FileLock::FileLock(const std::string& path, const std::string& waiting_for) {
  if (!open_descriptor(path, O_RDWR | O_CREAT)) {
    throw_io_error("create the lock", path, errno, write_remedy(errno));
  }
  try {
    if (lock_.take(path, std::chrono::milliseconds(0))) return;
    log_info(waiting_for);
    while (!lock_.take(path, std::chrono::minutes(1))) {
    }
  } catch (const IoError& error) {
    log_warning("cannot lock " + path + " (" +
                std::generic_category().message(error.error_number()) +
                "): several processes may do the same work");
  }
}

std::string read_whole_file(const std::string& path, std::int64_t limit_bytes) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  if (static_cast<std::int64_t>(bytes.size()) > limit_bytes) {
    throw IoError(path + " is " + format_bytes(static_cast<std::int64_t>(bytes.size())) +
                      ", more than the " + format_bytes(limit_bytes) + " such a file may have",
                  path);
  }
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool path_exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && !std::filesystem::is_directory(path))
    error.assign(ENOTDIR, std::generic_category());
  if (const int number = error.value()) {
    throw_io_error("create the folder", path, number, write_remedy(number));
  }
}

void make_parent_folder(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) make_folder(folder.string());
}

}  // namespace sluice
