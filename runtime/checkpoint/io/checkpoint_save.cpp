#include "runtime/checkpoint/io/checkpoint_save.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <exception>
#include <random>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/checkpoint/format/step_name.hpp"
#include "runtime/checkpoint/io/checkpoint_catalog.hpp"
#include "runtime/checkpoint/io/tokenizer_files.hpp"

namespace sluice {
namespace {

std::string new_save_id() {
  std::random_device random;
  return hex64(std::uint64_t{random()} << 32U | random());
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

// Throws unless rank 0 sees the file with its size. Otherwise no run could load the checkpoint.
void check_visible(FileSystem& files, const SaveTarget& target, const FileRecord& file,
                   int local_ranks) {
  const std::string path = join_path(target.path(), file.name);
  const auto stat = files.stat(path);
  if (!stat) {
    // Rank 0 has made the folder.
    const bool removed = file.rank < local_ranks || !files.stat(target.path());
    throw CheckpointError(
        format_text("rank {} wrote this file, but {}", file.rank,
                    removed ? "it was removed before the checkpoint was complete: look for a "
                              "program that removes files from checkpoint.dir"
                            : "rank 0 does not see it: checkpoint.dir has to be on a file system "
                              "that all hosts share"),
        path);
  }
  if (stat->bytes != file.bytes) {
    throw CheckpointError(
        format_text("has {} bytes, but rank {} wrote {}", stat->bytes, file.rank, file.bytes),
        path);
  }
}

// Whether the checkpoint counts as complete. If not, a warning says why, and how long it stays.
bool is_complete(FileSystem& files, const std::string& path, bool known_bad, bool stays_for_good) {
  std::string why;
  try {
    if (known_bad) throw CheckpointError("was found damaged when the run resumed", path);
    (void)open_checkpoint(files, path);
    return true;
  } catch (const NewerFormatError& error) {
    why = "not counted as a checkpoint, and it stays: " + std::string(error.what());
  } catch (const CheckpointError& error) {
    why = "not counted as a checkpoint, and it stays";
    why += stays_for_good ? ": " : " until checkpoint.keep newer ones are complete: ";
    why += error.what();
  } catch (const IoError& error) {
    why = "cannot tell whether it is a checkpoint, so it stays: " + std::string(error.what());
  }
  log_warning(why);
  return false;
}

}  // namespace

SaveTarget begin_save(FileSystem& files, const std::string& dir, std::int64_t step) {
  check(step >= 0, "a step to save");
  const auto status = files.stat(dir);
  const std::vector<CatalogEntry> entries =
      status && status->directory ? catalog(files, dir) : std::vector<CatalogEntry>();
  // If `dir` has a committed checkpoint, an earlier save has made the folders durable.
  const bool has_one = std::any_of(entries.begin(), entries.end(),
                                   [](const CatalogEntry& entry) { return entry.has_manifest; });
  if (!has_one) make_dirs_durably(files, dir);
  SaveTarget target{dir, "", step, 1, new_save_id()};
  std::int64_t attempt = 0;
  std::vector<std::string> unfinished;
  for (const CatalogEntry& entry : entries) {
    target.generation = std::max(target.generation, entry.generation + 1);
    if (!entry.has_manifest) {  // no other process writes to `dir`, so this save is not under way
      unfinished.push_back(entry.name);
      continue;
    }
    const auto name = parse_step_name(entry.name);
    if (name && name->step == step) attempt = std::max(attempt, name->attempt + 1);
  }
  for (const std::string& name : unfinished) remove_checkpoint(files, join_path(dir, name));
  target.name = step_name(step, attempt);
  const auto in_the_way = files.stat(target.path());
  if (in_the_way && !in_the_way->directory) {
    throw CheckpointError("a file is in the way of a new checkpoint: move it elsewhere",
                          target.path());
  }
  if (!files.make_dir(target.path()) && !files.list(target.path()).empty()) {
    throw CheckpointError("there are files in the way of a new checkpoint: move them elsewhere",
                          target.path());
  }
  files.sync_dir(dir);
  return target;
}

void commit(FileSystem& files, const SaveTarget& target, std::span<const std::string> records,
            const RunState& run, int local_ranks) {
  const std::string path = join_path(target.path(), kManifestName);
  Manifest manifest;
  manifest.step = target.step;
  manifest.generation = target.generation;
  manifest.save_id = target.save_id;
  manifest.saved_at = utc_now();
  manifest.run = run;
  for (std::size_t i = 0; i < records.size(); ++i) {
    std::int64_t block_bytes = 0;
    manifest.files.push_back(parse_file_record(records[i], target.save_id, block_bytes, path));
    if (i == 0) manifest.block_bytes = block_bytes;
    if (block_bytes != manifest.block_bytes) {
      throw CheckpointError("the ranks wrote checksums of blocks of different sizes", path);
    }
  }
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const FileRecord& a, const FileRecord& b) { return a.rank < b.rank; });
  check_manifest(manifest, path);
  for (const FileRecord& file : manifest.files) check_visible(files, target, file, local_ranks);
  write_tokenizer_files(files, target.path(), run.tokenizer);
  replace_durably(files, path, encode_manifest(manifest));
  try {
    replace_durably(files, join_path(target.dir, kLatestName), target.name + "\n");
  } catch (const IoError& error) {  // Sluice itself does not read `latest`
    log_warning(target.path() + " is complete, but `latest` does not name it: " + error.what());
  }
}

void abandon_save(FileSystem& files, const SaveTarget& target) noexcept {
  try {
    const std::string path = target.path();
    if (!files.stat(path) || files.stat(join_path(path, kManifestName))) return;
    remove_checkpoint(files, path);
    files.sync_dir(target.dir);
  } catch (const std::exception& error) {
    log_warning("an unfinished checkpoint stays for now: " + std::string(error.what()));
  }
}

std::vector<std::string> purge(FileSystem& files, const std::string& dir,
                               const PurgeOptions& options) {
  check(options.keep >= 0, "a number of checkpoints to keep");
  const std::vector<CatalogEntry> entries = catalog(files, dir);
  const auto is_bad = [&](const std::string& name) {
    return std::find(options.known_bad.begin(), options.known_bad.end(), name) !=
           options.known_bad.end();
  };
  int complete = 0;
  std::int64_t newest_step = -1;
  std::vector<std::string> remove;
  for (const CatalogEntry& entry : entries) {  // newest first; entries of unknown age last
    const std::string path = join_path(dir, entry.name);
    if (!entry.has_manifest) {
      if (entry.step <= newest_step) remove.push_back(entry.name);
      continue;
    }
    const bool stays = options.keep == 0 || entry.unreadable || entry.misnamed;
    if (!stays && complete >= options.keep) {
      remove.push_back(entry.name);
      continue;
    }
    if (!is_complete(files, path, is_bad(entry.name), stays)) continue;
    if (complete++ == 0) newest_step = entry.step;
  }
  std::reverse(remove.begin(), remove.end());
  for (const std::string& name : remove) remove_checkpoint(files, join_path(dir, name));
  if (!remove.empty()) files.sync_dir(dir);
  return remove;
}

}  // namespace sluice
