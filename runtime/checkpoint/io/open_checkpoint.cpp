#include <algorithm>

#include "base/format.hpp"
#include "runtime/checkpoint/format/step_name.hpp"
#include "runtime/checkpoint/io/checkpoint_catalog.hpp"
#include "runtime/checkpoint/io/checkpoint_load.hpp"

namespace sluice {
namespace {

void check_files(FileSystem& files, const std::string& dir, const Manifest& manifest) {
  for (const TokenizerFile& file : manifest.run.tokenizer.files) {
    const std::string path = join_path(dir, file.name);
    const auto stat = files.stat(path);
    if (!stat) throw CheckpointError(std::string("is missing") + kOlderMayBeWhole, path);
    if (stat->bytes == file.bytes) continue;
    throw CheckpointError(
        format_text("the file has {} bytes instead of {}", stat->bytes, file.bytes), path);
  }
  for (const FileRecord& file : manifest.files) {
    const std::string path = join_path(dir, file.name);
    const auto stat = files.stat(path);
    if (!stat) throw CheckpointError(std::string("is missing") + kOlderMayBeWhole, path);
    if (stat->bytes == file.bytes) continue;
    std::string tensor;  // the first tensor that is not whole
    for (const RangeRecord& record : file.ranges) {
      if (record.offset + record.range.bytes() <= stat->bytes) continue;
      tensor = tensor_name(record.range);
      break;
    }
    throw CheckpointError(
        format_text("the file has {} bytes instead of {}{}", stat->bytes, file.bytes,
                    stat->bytes < file.bytes ? ": it was cut short" : ""),
        path, tensor, std::min(stat->bytes, file.bytes));
  }
}

// The newest checkpoint of a folder by generation, or "". A damaged manifest of a later step counts
// as newer: opening it reports the damage instead of silently choosing an older checkpoint.
std::string newest_in(FileSystem& files, const std::string& dir) {
  const std::vector<CatalogEntry> entries = catalog(files, dir);
  const CatalogEntry* newest = nullptr;
  for (const CatalogEntry& entry : entries) {
    if (!entry.has_manifest) continue;
    const bool may_be_newer = newest && entry.generation < 0 && entry.step > newest->step;
    if (newest == nullptr || may_be_newer) newest = &entry;
  }
  return newest != nullptr ? newest->name : "";
}

// The step's directory for `given`.
std::string resolve(FileSystem& files, const std::string& given) {
  if (files.stat(join_path(given, kManifestName))) return given;
  const std::string path = checkpoints_in(files, given);
  const auto status = files.stat(path);
  if (!status || !status->directory) {
    throw CheckpointError(
        "there is no such checkpoint; give the folder of one (.../step-00000500), the folder that "
        "they are in or that of the run (--resume takes auto, too: the newest of checkpoint.dir)",
        path);
  }
  const std::string newest = newest_in(files, path);
  if (!newest.empty()) return join_path(path, newest);
  const std::string former = join_path(given, std::string(kRunCheckpoints) + ".1");
  if (files.stat(former)) {
    throw CheckpointError("the last run of this folder has saved nothing; " + former +
                              " and its like hold what runs before it saved",
                          given);
  }
  if (files.stat(join_path(given, "metrics.jsonl"))) {
    throw CheckpointError(
        "the run of this folder has saved nothing here; if checkpoint.dir of its config.yaml is "
        "another folder, give that one",
        given);
  }
  throw CheckpointError(
      "no checkpoint was completed here: there is no manifest.json; `sluice checkpoint ls` of the "
      "folder above shows which were",
      path);
}

}  // namespace

std::string checkpoints_in(FileSystem& files, const std::string& path) {
  const std::string inner = join_path(path, kRunCheckpoints);
  const auto status = files.stat(inner);
  if (!status || !status->directory || files.stat(join_path(path, kManifestName))) return path;
  return catalog(files, path).empty() ? inner : path;
}

void check_folder_name(FileSystem& files, const std::string& dir, const Manifest& manifest) {
  const std::string own = dir.substr(0, dir.find_last_not_of('/') + 1);
  const auto name = parse_step_name(own.substr(own.rfind('/') + 1));  // npos + 1 is 0
  if (!name || name->step == manifest.step) return;
  std::string right;  // the first name of the manifest's step that is free
  for (std::int64_t attempt = 0; right.empty() || files.stat(join_path(parent_path(own), right));) {
    right = step_name(manifest.step, attempt++);
  }
  throw CheckpointError(
      format_text("is the manifest of step {}; rename the folder to {}", manifest.step, right),
      join_path(dir, kManifestName));
}

Checkpoint open_checkpoint(FileSystem& files, const std::string& path, OpenCheck check) {
  const std::string dir = resolve(files, path);
  const std::string manifest_path = join_path(dir, kManifestName);
  Manifest manifest =
      parse_manifest(read_text(files, manifest_path, kMaxManifestBytes), manifest_path);
  check_folder_name(files, dir, manifest);
  check_manifest(manifest, manifest_path);
  if (check == OpenCheck::kFiles) check_files(files, dir, manifest);
  return {files, dir, std::move(manifest)};
}

}  // namespace sluice
