#include <algorithm>

#include "runtime/checkpoint/checkpoint_load.hpp"
#include "runtime/checkpoint/step_name.hpp"

namespace sluice {
namespace {

// A manifest of a trillion parameters is some 200 MB.
constexpr std::int64_t kMaxManifestBytes = 1 << 30;

void check_files(FileSystem& files, const std::string& dir, const Manifest& manifest) {
  for (const FileRecord& file : manifest.files) {
    const std::string path = join_path(dir, file.name);
    const auto stat = files.stat(path);
    if (!stat) throw CheckpointError("is missing", path);
    if (stat->bytes == file.bytes) continue;
    std::string tensor;  // the first that is not whole
    for (const RangeRecord& record : file.ranges) {
      if (record.offset + record.range.bytes() <= stat->bytes) continue;
      tensor = tensor_name(record.range);
      break;
    }
    throw CheckpointError("the file has " + std::to_string(stat->bytes) + " bytes instead of " +
                              std::to_string(file.bytes) +
                              (stat->bytes < file.bytes ? ": it was cut short" : ""),
                          path, tensor, std::min(stat->bytes, file.bytes));
  }
}

// The step's directory that `path` means.
std::string resolve(FileSystem& files, const std::string& path) {
  if (files.stat(join_path(path, kManifestName))) return path;
  const std::string latest = join_path(path, kLatestName);
  if (!files.stat(latest)) {
    if (!files.stat(path)) throw CheckpointError("there is no such checkpoint", path);
    throw CheckpointError("no checkpoint was completed here: there is no manifest.json", path);
  }
  std::string name = read_text(files, latest, 4096);
  if (name.ends_with('\n')) name.pop_back();
  if (!parse_step_name(name))
    throw CheckpointError("does not hold a step directory's name", latest);
  const std::string step = join_path(path, name);
  if (!files.stat(join_path(step, kManifestName))) {
    throw CheckpointError("`latest` names it, but it has no manifest.json", step);
  }
  return step;
}

}  // namespace

Checkpoint open_checkpoint(FileSystem& files, const std::string& path) {
  const std::string dir = resolve(files, path);
  const std::string manifest_path = join_path(dir, kManifestName);
  Manifest manifest =
      parse_manifest(read_text(files, manifest_path, kMaxManifestBytes), manifest_path);
  const std::size_t slash = dir.find_last_not_of('/');
  const std::size_t begin = dir.rfind('/', slash);
  const std::size_t first = begin == std::string::npos ? 0 : begin + 1;
  const auto name = parse_step_name(std::string_view(dir).substr(first, slash + 1 - first));
  if (name && name->step != manifest.step) {
    throw CheckpointError("is the manifest of step " + std::to_string(manifest.step),
                          manifest_path);
  }
  check_manifest(manifest, manifest_path);
  check_files(files, dir, manifest);
  return {files, dir, std::move(manifest)};
}

}  // namespace sluice
