#include "runtime/cli/saving_setup.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "kernels/base/error.hpp"
#include "runtime/checkpoint/checkpoint_catalog.hpp"
#include "runtime/checkpoint/checkpoint_load.hpp"
#include "runtime/checkpoint/file_system.hpp"
#include "runtime/cli/run_setup.hpp"
#include "runtime/engine/checkpointing.hpp"
#include "runtime/engine/resume.hpp"
#include "runtime/engine/run_settings.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Of the launcher, in nanoseconds of the steady clock, which all processes of a host share.
constexpr const char* kStarted = "SLUICE_STARTED_NS";

using Clock = std::chrono::steady_clock;

Clock::time_point started() {
  const char* given = std::getenv(kStarted);
  if (given == nullptr) return Clock::now();
  const std::string_view text = given;
  std::int64_t ns = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ns);
  const Clock::time_point then{std::chrono::nanoseconds(ns)};
  return error == std::errc() && then < Clock::now() ? then : Clock::now();
}

// Said now rather than after the hours until the first save. Nothing is made yet.
void check_may_write(const std::string& dir) {
  std::error_code ignored;
  fs::path there = fs::absolute(dir).lexically_normal();
  while (!fs::exists(fs::symlink_status(there, ignored)) && there.has_relative_path()) {
    there = there.parent_path();
  }
  const bool folder = fs::is_directory(there, ignored);
  if (folder && ::access(there.c_str(), W_OK | X_OK) == 0) return;
  const int error = folder ? errno : ENOTDIR;
  throw IoError("checkpoint.dir " + dir + ": cannot write in " + there.string() + ": " +
                    std::strerror(error) + "; set checkpoint.dir to a folder you may write to",
                dir, error);
}

// A start waits so long for a run that is ending; its own ranks wait meanwhile.
std::chrono::milliseconds patience(const RunConfig& run) {
  return std::min<std::chrono::milliseconds>(std::chrono::seconds(10), launch_timeout(run) / 4);
}

std::vector<WrittenFolder> written_folders(const LoadedConfig& config,
                                           const SavingOptions& saving) {
  std::vector<WrittenFolder> folders{{"output.dir", config.run.output.dir}};
  // A run that saves only when save-now asks for it leaves no empty folder.
  std::error_code ignored;
  if (saving.on || fs::is_directory(saving.checkpoint.dir, ignored)) {
    folders.push_back({"checkpoint.dir", saving.checkpoint.dir});
  }
  return folders;
}

void check_resume_here(const SavingOptions& saving) {
  check_resume(local_file_system(), {.from = saving.resume, .dir = saving.checkpoint.dir});
}

}  // namespace

SavingOptions saving_options(const LoadedConfig& config, const std::string& resume) {
  const CheckpointOptions& asked = config.run.checkpoint;
  SavingOptions saving;
  saving.checkpoint = asked;
  if (asked.dir.empty()) saving.checkpoint.dir = config.run.output.dir + "/checkpoints";
  saving.on = !asked.dir.empty() || asked.every != SaveInterval{} || asked.time_limit_seconds > 0 ||
              resume != "never";
  saving.resume = resume;
  saving.config = config.resolved_yaml();
  saving.started = started();
  return saving;
}

void check_saving(const LoadedConfig& config, const std::string& resume, const MemoryPlan& memory) {
  const SavingOptions saving = saving_options(config, resume);
  if (!saving.on) return;
  check_resume_here(saving);
  check_may_write(saving.checkpoint.dir);
  check_saving_room(room_for_saving(memory));
}

void check_folders_free(const LoadedConfig& config, const std::string& resume) {
  check_not_written(written_folders(config, saving_options(config, resume)), patience(config.run));
}

WriterLock lock_folders(const LoadedConfig& config, const std::string& resume) {
  const SavingOptions saving = saving_options(config, resume);
  WriterLock lock(written_folders(config, saving),
                  "run " + fs::absolute(config.run.output.dir).lexically_normal().string(),
                  patience(config.run));
  if (saving.on) check_resume_here(saving);
  return lock;
}

std::optional<MatmulType> resumed_matmul(const LoadedConfig& config, const std::string& resume) {
  const TrainOptions& train = config.run.train;
  const bool is_open = train.matmul == MatmulChoice::kAuto && train.dtype != DType::kFloat32;
  if (!is_open || resume == "never") return std::nullopt;
  FileSystem& files = local_file_system();
  try {
    const std::string dir = saving_options(config, resume).checkpoint.dir;
    const std::optional<std::string> path =
        resume == "auto" ? newest_complete(files, dir, Trust::kManifest).path : resume;
    if (!path) return std::nullopt;
    return matmul_of(open_checkpoint(files, *path, OpenCheck::kManifest).manifest().run);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void prepare_saving(const LoadedConfig& config, const std::string& resume, LaunchRequest& request) {
  if (!saving_options(config, resume).on) return;
  request.stop_grace = std::max(request.stop_grace, launch_timeout(config.run));
  // An agent's launcher on this host has said already when the run began.
  const auto begun =
      std::chrono::duration_cast<std::chrono::nanoseconds>(started().time_since_epoch());
  request.environment.emplace_back(kStarted, std::to_string(begun.count()));
}

}  // namespace sluice
