#include "runtime/cli/setup/saving_setup.hpp"

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

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"
#include "runtime/checkpoint/hf/hf_config.hpp"
#include "runtime/checkpoint/io/checkpoint_catalog.hpp"
#include "runtime/checkpoint/io/checkpoint_load.hpp"
#include "runtime/checkpoint/io/file_system.hpp"
#include "runtime/cli/setup/run_setup.hpp"
#include "runtime/data/data_sets.hpp"
#include "runtime/data/tokenizer/tokenizer.hpp"
#include "runtime/launch/hosts/agent.hpp"
#include "runtime/model/model_spec.hpp"
#include "runtime/run/resume.hpp"
#include "runtime/run/run_settings.hpp"
#include "runtime/run/save/save_memory.hpp"
#include "runtime/run/step_meter.hpp"
#include "zero/optimizer_rule.hpp"

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

// `dir`, or its nearest existing parent.
fs::path existing(const std::string& dir) {
  std::error_code ignored;
  fs::path there = fs::absolute(dir).lexically_normal();
  while (!fs::exists(fs::symlink_status(there, ignored)) && there.has_relative_path()) {
    there = there.parent_path();
  }
  return there;
}

// Said now rather than after the hours until the first save. Nothing is made yet.
void check_may_write(const std::string& key, const std::string& dir) {
  std::error_code ignored;
  const fs::path there = existing(dir);
  const bool leads_nowhere = !fs::exists(there, ignored);  // a symbolic link
  const bool folder = fs::is_directory(there, ignored);
  if (folder && ::access(there.c_str(), W_OK | X_OK) == 0) return;
  const int error = folder ? errno : leads_nowhere ? ENOENT : ENOTDIR;
  throw IoError(key + " " + dir + ": cannot write in " + there.string() + ": " +
                    std::strerror(error) + "; set " + key + " to a folder you may write to",
                dir, error);
}

// A start waits so long for a run that is ending; its own ranks wait meanwhile.
std::chrono::milliseconds patience(const RunConfig& run) {
  return std::min<std::chrono::milliseconds>(std::chrono::seconds(10), launch_timeout(run) / 4);
}

// All keys that save, as arguments.
std::string settings_without_saving(const CheckpointOptions& saving) {
  std::string text = "--set checkpoint.at_end=false";
  if (saving.every != SaveInterval{}) text += " --set checkpoint.every=0";
  if (saving.time_limit_seconds > 0) text += " --set checkpoint.time_limit=0";
  return text;
}

// Failpoint: checkpoint.free_space with nan: the disk is full.
void check_disk(const CheckpointOptions& saving, std::int64_t bytes) {
  std::error_code unknown;
  const fs::space_info space = fs::space(existing(saving.dir), unknown);
  if (unknown || space.capacity == 0) return;  // no disk: whoever writes there says why
  const bool full = failpoint("checkpoint.free_space") == FailpointOutcome::kPoison;
  const auto free = full ? 0 : static_cast<std::int64_t>(space.available);
  const std::string room = "checkpoint.dir " + saving.dir + ": a checkpoint takes " +
                           format_bytes(bytes) + " and " + format_bytes(free) + " are free";
  if (free < bytes) {
    throw BudgetError(room +
                      "; name a folder with room in checkpoint.dir, or train without "
                      "saving: " +
                      settings_without_saving(saving));
  }
  const std::int64_t most = bytes * (saving.keep + 1);  // while the newest is written
  if (saving.every == SaveInterval{} || saving.keep == 0 || free >= most) return;
  log_warning(room + "; checkpoint.keep: " + std::to_string(saving.keep) +
              " and the one that is being written take " + format_bytes(most));
}

// One that saves only when save-now asks for it as well: its steps are not to be mixed with
// another's.
std::vector<WrittenFolder> written_folders(const LoadedConfig& config,
                                           const SavingOptions& saving) {
  return {{"output.dir", config.run.output.dir}, {"checkpoint.dir", saving.checkpoint.dir}};
}

ResumeRequest resume_request(const SavingOptions& saving) {
  return {.from = saving.resume, .dir = saving.checkpoint.dir};
}

// A user who names a folder or a time of saving knows the folder's content.
bool saves_by_default(const CheckpointOptions& asked) {
  return asked.at_end && asked.dir.empty() && asked.every == SaveInterval{} &&
         asked.time_limit_seconds == 0;
}

// A run that saves by default displaces no checkpoints; a run that does not save needs no place.
void check_resume_here(const LoadedConfig& config, const SavingOptions& saving) {
  if (!saving.on || saves_by_default(config.run.checkpoint)) {
    check_resume_source(local_file_system(), resume_request(saving));
  } else {
    check_resume(local_file_system(), resume_request(saving));
  }
}

// To the first name that is free; nothing is ever removed. Of a symbolic link the target moves, and
// the link stays: the new checkpoints go to the same disk.
MovedFolders::Folder move_aside(const std::string& checkpoint_dir, const std::string& earlier) {
  std::error_code failed;
  std::error_code ignored;
  const bool link = fs::is_symlink(checkpoint_dir, ignored);
  const std::string dir = link ? fs::canonical(checkpoint_dir, failed).string() : checkpoint_dir;
  std::string aside;
  for (int n = 1; aside.empty() || fs::exists(fs::symlink_status(aside, ignored)); ++n) {
    aside = dir + "." + std::to_string(n);
  }
  if (!failed) fs::rename(dir, aside, failed);
  if (!failed && link && !fs::create_directory(dir, failed)) {
    fs::rename(aside, dir, ignored);
  }
  if (failed) {
    const std::string remedy =
        link ? "make the link " + checkpoint_dir + " lead to a new folder" : "move it away";
    throw IoError("cannot move the earlier run's " + dir + " to " + aside + ": " +
                      failed.message() + "; " + remedy + ", or set output.dir to another folder",
                  dir, failed.value());
  }
  fs::remove(fs::path(aside) / kWriterLockName, ignored);
  log_info("the earlier run's checkpoints (" + earlier + ") are in " + aside + " now");
  return {.from = dir, .to = aside};
}

// Onto an empty folder at most.
void move_back(const MovedFolders::Folder& moved) noexcept {
  std::error_code failed;
  fs::rename(moved.to, moved.from, failed);
  if (failed) {
    log_warning("the run did not start, and the earlier run's checkpoints stay in " + moved.to +
                ": " + failed.message());
  } else {
    log_info("the run did not start: the earlier run's checkpoints are in " + moved.from +
             " again");
  }
}

}  // namespace

SavingOptions saving_options(const LoadedConfig& config, const std::string& resume) {
  const CheckpointOptions& asked = config.run.checkpoint;
  SavingOptions saving;
  saving.checkpoint = asked;
  if (asked.dir.empty()) {
    saving.checkpoint.dir = join_path(config.run.output.dir, kRunCheckpoints);
  }
  saving.on = asked.at_end || asked.every != SaveInterval{} || asked.time_limit_seconds > 0;
  saving.resume = resume;
  saving.config = config.resolved_yaml();
  if (!config.run.model.from.empty()) saving.end_tokens = read_hf_end_tokens(config.run.model.from);
  if (!config.run.data.sft.empty()) saving.chat_template = config.run.data.chat_template;
  saving.started = started();
  return saving;
}

std::int64_t checkpoint_bytes(const RunConfig& run, const RunPlace& place) {
  const auto moment = size_of(run.offload.states_dtype);
  const auto moments = static_cast<std::int64_t>(rule_of(run.optimizer.type).moments);
  const ModelSpec spec = make_model_spec(engine_options(run, place).model);
  const std::int64_t frozen = spec.frozen_param_count();
  return (spec.param_count() - frozen) * (4 + moments * moment) + frozen * size_of(run.train.dtype);
}

std::string describe_saving(const LoadedConfig& config, const RunPlace& place) {
  const SavingOptions saving = saving_options(config, "never");
  const CheckpointOptions& asked = saving.checkpoint;
  if (!saving.on) return "saves nothing (checkpoint.at_end: false)";
  std::string when;
  if (asked.every.steps > 0) when = "every " + counted(asked.every.steps, "step");
  if (asked.every.seconds > 0) when = "every " + format_duration(asked.every.seconds);
  if (asked.at_end) when += when.empty() ? "after the last step" : " and after the last";
  if (when.empty()) when = "before checkpoint.time_limit";
  std::string text =
      "saves " + when + ": " + format_bytes(checkpoint_bytes(config.run, place)) + " on the disk";
  if (asked.every != SaveInterval{}) {
    text += asked.keep == 0
                ? " each, all kept"
                : " each, " + std::to_string(asked.keep) + " kept and one being written";
  }
  return text + ", in " + asked.dir +
         (asked.every == SaveInterval{} ? " (checkpoint.at_end: false saves nothing)" : "");
}

void check_saving(const LoadedConfig& config, const std::string& resume, const RunPlace& place,
                  const MemoryPlan& memory) {
  const SavingOptions saving = saving_options(config, resume);
  check_resume_here(config, saving);
  check_room_to_save(config, resume, place, memory);
}

void check_room_to_save(const LoadedConfig& config, const std::string& resume,
                        const RunPlace& place, const MemoryPlan& memory) {
  const SavingOptions saving = saving_options(config, resume);
  if (!saving.on) return;
  const std::string& dir = saving.checkpoint.dir;
  std::error_code ignored;
  const bool named = !config.run.checkpoint.dir.empty();
  if (!named) check_may_write("output.dir", config.run.output.dir);
  if (named || fs::exists(fs::symlink_status(dir, ignored))) check_may_write("checkpoint.dir", dir);
  check_disk(saving.checkpoint, checkpoint_bytes(config.run, place));
  check_saving_room(room_for_saving(memory));
}

void check_folders_free(const LoadedConfig& config, const std::string& resume) {
  check_not_written(written_folders(config, saving_options(config, resume)), patience(config.run));
}

MovedFolders::~MovedFolders() {
  for (auto folder = folders_.rbegin(); folder != folders_.rend(); ++folder) move_back(*folder);
}

RunFolders::RunFolders(const LoadedConfig& config, const std::string& resume) {
  const SavingOptions saving = saving_options(config, resume);
  const std::vector<WrittenFolder> folders = written_folders(config, saving);
  const std::string work = "run " + fs::absolute(config.run.output.dir).lexically_normal().string();
  if (!saves_by_default(config.run.checkpoint)) {
    output_lock_.emplace(folders, work, patience(config.run));
    check_resume_here(config, saving);
    return;
  }
  // checkpoint.dir lies in output.dir, whose lock is held while earlier checkpoints are moved.
  output_lock_.emplace(std::vector{folders.front()}, work, patience(config.run));
  while (true) {
    checkpoint_lock_.emplace(std::vector{folders.back()}, work, patience(config.run));
    check_resume_here(config, saving);
    const std::optional<std::string> earlier =
        earlier_checkpoint(local_file_system(), resume_request(saving));
    if (!earlier) return;
    checkpoint_lock_.reset();  // its file lies in the folder that moves
    moved_.add(move_aside(saving.checkpoint.dir, *earlier));
  }
}

std::optional<ResumePoint> check_resumed(const LoadedConfig& config, const std::string& resume,
                                         const RunPlace& place, const Tokenizer* tokenizer) {
  if (resume == "never") return std::nullopt;
  const EngineOptions options = engine_options(config.run, place);
  ResumeRequest request = resume_request(saving_options(config, resume));
  request.settings = settings_of(options, global_batch_of(options));
  const bool keeps = tokenizer != nullptr && !tokenizer_spec_of(config.run.data).empty();
  if (keeps) request.tokenizer = tokenizer->fingerprint();
  try {
    return find_resume_point(local_file_system(), request, make_model_spec(options.model),
                             options.train.steps);
  } catch (const IoError&) {
    if (resume != "auto" || !config.run.offload.image) throw;
    return std::nullopt;  // the ranks may resume from the image
  }
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

std::chrono::milliseconds stop_grace(const LoadedConfig& config, const std::string& resume,
                                     int world) {
  constexpr std::int64_t kSlowDiskBytesPerMs = 50'000;  // 50 MB/s, of a busy network disk
  const SavingOptions saving = saving_options(config, resume);
  if (!saving.on && !config.run.offload.image) return LaunchRequest().stop_grace;
  // A save that is under way ends before the last one begins.
  const bool behind = saving.checkpoint.async && saving.checkpoint.every != SaveInterval{};
  const std::int64_t bytes = checkpoint_bytes(config.run, {.world = world}) * (behind ? 2 : 1);
  return std::max(LaunchRequest().stop_grace, launch_timeout(config.run)) +
         std::chrono::milliseconds(bytes / kSlowDiskBytesPerMs);
}

void prepare_saving(const LoadedConfig& config, const std::string& resume, LaunchRequest& request) {
  if (!saving_options(config, resume).on) return;
  // An agent's launcher on this host has said already when the run began.
  const auto begun =
      std::chrono::duration_cast<std::chrono::nanoseconds>(started().time_since_epoch());
  request.environment.emplace_back(kStarted, std::to_string(begun.count()));
}

}  // namespace sluice
