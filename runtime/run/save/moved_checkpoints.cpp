#include "runtime/run/save/moved_checkpoints.hpp"

#include <filesystem>
#include <optional>
#include <system_error>
#include <tuple>

#include "base/error.hpp"
#include "runtime/checkpoint/io/checkpoint_catalog.hpp"
#include "runtime/checkpoint/io/checkpoint_load.hpp"

namespace sluice {
namespace {

bool is_moved_name(const std::string& name, const std::string& base) {
  if (!name.starts_with(base + ".")) return false;
  const std::string number = name.substr(base.size() + 1);
  return !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
}

struct MovedCheckpoint {
  std::string path{};
  std::string saved_at{};  // UTC to the second: the order of these texts is that of time
  std::size_t digits = 0;  // of the folder's name: a longer one has a larger number
  std::string folder{};

  [[nodiscard]] auto order() const { return std::tie(saved_at, digits, folder); }
};

std::optional<MovedCheckpoint> newest_in(FileSystem& files, const std::string& dir) {
  try {
    const std::optional<std::string> path = newest_complete(files, dir, Trust::kManifest).path;
    if (!path) return std::nullopt;
    const Checkpoint checkpoint = open_checkpoint(files, *path, OpenCheck::kManifest);
    return MovedCheckpoint{.path = *path, .saved_at = checkpoint.manifest().saved_at};
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::string newest_moved_checkpoint(FileSystem& files, const std::string& dir) {
  namespace fs = std::filesystem;
  std::error_code failed;
  fs::path base = fs::is_symlink(dir, failed) ? fs::canonical(dir, failed) : fs::path(dir);
  if (!base.has_filename()) base = base.parent_path();  // "dir/"
  const fs::path parent = base.has_parent_path() ? base.parent_path() : fs::path(".");
  MovedCheckpoint newest;
  for (fs::directory_iterator at(parent, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string name = at->path().filename().string();
    if (!is_moved_name(name, base.filename().string())) continue;
    std::optional<MovedCheckpoint> found = newest_in(files, (base.parent_path() / name).string());
    if (!found) continue;
    found->digits = name.size();
    found->folder = name;
    if (found->order() > newest.order()) newest = *found;
  }
  return newest.path;
}

}  // namespace sluice
