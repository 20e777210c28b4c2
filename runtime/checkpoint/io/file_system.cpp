#include "runtime/checkpoint/io/file_system.hpp"

#include <cerrno>

#include "base/format.hpp"
#include "runtime/checkpoint/format/checkpoint_error.hpp"

namespace sluice {

std::string join_path(std::string_view dir, std::string_view name) {
  std::string path(dir);
  if (!path.empty() && path.back() != '/') path += '/';
  return path.append(name);
}

std::string parent_path(const std::string& path) {
  const std::size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) return path.empty() ? "." : "/";
  const std::size_t slash = path.rfind('/', end);
  if (slash == std::string::npos) return ".";
  const std::size_t last = path.find_last_not_of('/', slash);
  return last == std::string::npos ? "/" : path.substr(0, last + 1);
}

std::string read_text(FileSystem& files, const std::string& path, std::int64_t limit_bytes) {
  const std::unique_ptr<File> file = files.open(path);
  const std::int64_t bytes = file->size();
  if (bytes > limit_bytes) {
    throw CheckpointError(format_text("is {} bytes long, over the limit of {}", bytes, limit_bytes),
                          path);
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  const std::int64_t got = file->read(0, std::as_writable_bytes(std::span(text)));
  text.resize(static_cast<std::size_t>(got));
  return text;
}

void replace_durably(FileSystem& files, const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  {
    const std::unique_ptr<File> file = files.create(temporary);
    file->write(0, std::as_bytes(std::span(text)));
    file->sync();
  }
  files.rename(temporary, path);
  files.sync_dir(parent_path(path));
}

namespace {

// Syncs an existing directory. Ignores a directory that this user may not open, or that is
// read-only, because this program has created nothing in it.
void sync_dir_if_allowed(FileSystem& files, const std::string& path) {
  try {
    files.sync_dir(path);
  } catch (const IoError& error) {
    const int number = error.error_number();
    if (number != EACCES && number != EPERM && number != EROFS) throw;
  }
}

}  // namespace

void make_dirs_durably(FileSystem& files, const std::string& path) {
  const std::string parent = parent_path(path);
  if (parent == path) return;  // "/" or "."
  make_dirs_durably(files, parent);
  const auto status = files.stat(path);
  if ((status && status->directory) || !files.make_dir(path)) {
    sync_dir_if_allowed(files, parent);
    return;
  }
  try {
    files.sync_dir(parent);
  } catch (const IoError&) {
    files.remove_dir(path);  // otherwise the next attempt would treat it as an existing directory
    throw;
  }
}

}  // namespace sluice
