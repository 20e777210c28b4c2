#include "runtime/checkpoint/io/checkpoint_catalog.hpp"

#include <algorithm>
#include <exception>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/format/step_name.hpp"

namespace sluice {
namespace {

std::string read_head(FileSystem& files, const std::string& path) {
  const std::unique_ptr<File> file = files.open(path);
  std::string text(kManifestHeadBytes, '\0');
  text.resize(static_cast<std::size_t>(file->read(0, std::as_writable_bytes(std::span(text)))));
  return text;
}

// Returns why the checkpoint does not satisfy `trust`; "" if it does. Sets `manifest` if the
// manifest is sound.
std::string why_not(FileSystem& files, const std::string& path, Trust trust,
                    Manifest* manifest = nullptr) {
  try {
    if (!files.stat(join_path(path, kManifestName))) {
      return "it was never completed: it has no manifest.json";
    }
    const Checkpoint checkpoint = open_checkpoint(files, path);
    if (manifest != nullptr) *manifest = checkpoint.manifest();
  } catch (const IoError& error) {
    return error.what();
  }
  if (trust == Trust::kManifest) return "";
  const VerifyReport report = verify(files, path);
  if (report.sound()) return "";
  const std::size_t more = report.defects.size() - 1;
  return report.defects.front().what + (more > 0 ? format_text(" (and {} more)", more) : "");
}

std::string latest_in(FileSystem& files, const std::string& dir) {
  const std::string path = join_path(dir, kLatestName);
  std::string latest = files.stat(path) ? read_text(files, path, 4096) : "";
  if (latest.ends_with('\n')) latest.pop_back();
  return latest;
}

CheckpointSummary summary_of(FileSystem& files, const std::string& path, const std::string& name,
                             const std::string& latest) {
  CheckpointSummary summary;
  summary.name = name;
  summary.path = path;
  summary.is_latest = name == latest;
  if (const auto step = parse_step_name(name)) summary.step = step->step;
  Manifest manifest;
  summary.why_not = why_not(files, path, Trust::kManifest, &manifest);
  summary.complete = summary.why_not.empty();
  if (!summary.complete) return summary;
  summary.step = manifest.step;
  summary.generation = manifest.generation;
  summary.bytes = manifest.bytes();
  summary.saved_at = manifest.saved_at;
  summary.layout = manifest.run.layout;
  return summary;
}

}  // namespace

std::vector<CatalogEntry> catalog(FileSystem& files, const std::string& dir) {
  std::vector<CatalogEntry> entries;
  if (!files.stat(dir)) return entries;
  for (const std::string& name : files.list(dir)) {
    const auto step = parse_step_name(name);
    if (!step) continue;
    CatalogEntry entry{.name = name, .step = step->step};
    const auto status = files.stat(join_path(dir, name));
    if (!status || !status->directory) continue;  // a file with the name of a step directory
    const std::string path = join_path(join_path(dir, name), kManifestName);
    entry.has_manifest = files.stat(path).has_value();
    if (entry.has_manifest) {
      try {
        const ManifestHead head = parse_manifest_head(read_head(files, path), path);
        entry.generation = head.generation;
        entry.misnamed = head.step != entry.step;
      } catch (const NewerFormatError&) {
        entry.unreadable = true;
      } catch (const CheckpointError&) {
        entry.generation = -1;  // opening the checkpoint reports the cause
      } catch (const IoError&) {
        entry.unreadable = true;
      }
    }
    entries.push_back(std::move(entry));
  }
  const auto order = [](const CatalogEntry& entry) {
    return std::tuple(entry.generation, entry.step, parse_step_name(entry.name)->attempt);
  };
  std::sort(entries.begin(), entries.end(),
            [&](const CatalogEntry& a, const CatalogEntry& b) { return order(a) > order(b); });
  return entries;
}

std::vector<CheckpointSummary> ls(FileSystem& files, const std::string& dir) {
  const std::string path = dir.substr(0, dir.find_last_not_of('/') + 1);
  const std::string name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  if (files.stat(join_path(dir, kManifestName)) || (parse_step_name(name) && files.stat(dir))) {
    return {summary_of(files, path, name, latest_in(files, parent_path(path)))};
  }
  const std::string latest = latest_in(files, dir);
  std::vector<CheckpointSummary> result;
  for (const CatalogEntry& entry : catalog(files, dir)) {
    CheckpointSummary summary = summary_of(files, join_path(dir, entry.name), entry.name, latest);
    summary.step = entry.step;
    summary.generation = entry.generation;
    result.push_back(std::move(summary));
  }
  return result;
}

NewestComplete newest_complete(FileSystem& files, const std::string& dir, Trust trust,
                               const std::vector<std::string>& known_bad) {
  NewestComplete result;
  std::int64_t step = -1;
  for (const CatalogEntry& entry : catalog(files, dir)) {
    // After the first sound checkpoint, only two kinds of entries may still be newer: those of
    // unknown age, and a later step that was never completed.
    const bool may_be_newer = entry.generation < 0 && (entry.has_manifest || entry.step > step);
    if (result.path && !may_be_newer) continue;
    const std::string path = join_path(dir, entry.name);
    if (std::find(known_bad.begin(), known_bad.end(), entry.name) != known_bad.end()) {
      result.refused.push_back({entry.name, "it was refused before"});
      continue;
    }
    const std::string reason = why_not(files, path, trust);
    if (!reason.empty()) {
      result.refused.push_back({entry.name, reason});
    } else if (result.path) {
      result.refused.push_back({entry.name, "its manifest could not be read at first: try again"});
    } else {
      result.path = path;
      result.name = entry.name;
      step = entry.step;
    }
  }
  return result;
}

}  // namespace sluice
