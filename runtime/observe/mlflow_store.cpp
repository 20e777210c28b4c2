#include "runtime/observe/mlflow_store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <system_error>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/posix/atomic_file.hpp"
#include "base/posix/io_error.hpp"
#include "runtime/observe/event_file.hpp"
#include "runtime/observe/mlflow_text.hpp"

namespace sluice {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSetting = "output.mlflow";
constexpr const char* kPointer = "/mlflow-run";
constexpr const char* kMeta = "/meta.yaml";

[[noreturn]] void fail_in_store(std::string_view action, const std::string& path, int error) {
  throw_io_error(action, path, error, write_remedy(error, kSetting));
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void make_folders(const std::string& path) {
  std::error_code failed;
  fs::create_directories(path, failed);
  if (failed) fail_in_store("create", path, failed.value());
}

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A small file that may not be there yet. MLflow lists every file of params/ and tags/, so the
// file appears there whole, under its own name: the text is written in the run's folder first.
void place_file(const std::string& run, const std::string& name, std::string_view text) {
  const std::string target = run + "/" + name;
  const std::string beside = run + "/.sluice-new";
  make_folders(fs::path(target).parent_path().string());
  {
    const Descriptor file = open_descriptor(beside, O_WRONLY | O_CREAT | O_TRUNC);
    if (!file) fail_in_store("open", beside, errno);
    append_whole(file.get(), text, beside, kSetting);
  }
  if (std::rename(beside.c_str(), target.c_str()) != 0) fail_in_store("create", target, errno);
}

std::string new_run_id() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) {
    char digits[16];
    std::snprintf(digits, sizeof digits, "%08x", random());
    id += digits;
  }
  return id;
}

std::string user_name() {
  for (const char* const variable : {"USER", "LOGNAME"}) {
    const char* const name = std::getenv(variable);
    if (name != nullptr && *name != '\0') return name;
  }
  return "unknown";
}

std::string run_name(const std::string& output_dir) {
  const fs::path path = fs::path(output_dir).lexically_normal();
  const std::string name =
      path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
  return name.empty() ? "run" : name;
}

// The folder of the experiment: one that MLflow or an earlier run made, or a new one.
std::string find_experiment(const std::string& root) {
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(root, failed)) {
    const std::string folder = entry.path().string();
    const std::string meta = text_of(folder + kMeta);
    if (meta_value(meta, "name") == kMlflowExperiment &&
        meta_value(meta, "lifecycle_stage") != "deleted") {
      return folder;
    }
  }
  return "";
}

void place_experiment(const std::string& root, std::string_view id, std::string_view name) {
  const std::string folder = (root + "/").append(id);
  make_folders(folder);
  write_file_atomically(folder + kMeta, experiment_meta_text(id, name, file_uri(folder), now_ms()));
}

std::string experiment_in(const std::string& root) {
  std::error_code missing;
  if (!fs::exists(root + "/0" + kMeta, missing) && !fs::exists(root + "/.trash", missing)) {
    place_experiment(root, "0", "Default");  // as MLflow begins a store
    make_folders(root + "/.trash");
  }
  std::string found = find_experiment(root);
  if (!found.empty()) return found;
  std::string id = experiment_id_of(kMlflowExperiment);
  if (fs::exists((root + "/.trash/").append(id), missing)) id = std::to_string(now_ms());
  place_experiment(root, id, kMlflowExperiment);
  return root + "/" + id;
}

// The folder that output_dir/mlflow-run names; empty if the run is missing or deleted.
std::string noted_run(const std::string& output_dir) {
  std::string path = text_of(output_dir + kPointer);
  path.erase(path.find_last_not_of('\n') + 1);
  if (path.empty()) return "";
  const std::string meta = text_of(path + kMeta);
  return meta.empty() || meta_value(meta, "lifecycle_stage") == "deleted" ? "" : path;
}

bool lies_in(const std::string& path, const std::string& root) {
  std::error_code failed;
  return fs::equivalent(fs::path(path).parent_path().parent_path(), root, failed) && !failed;
}

void set_status(const std::string& run, MlflowStatus status) {
  std::string meta = text_of(run + kMeta);
  if (meta.empty()) fail_in_store("read", run + kMeta, ENOENT);
  const bool ended = status != MlflowStatus::kRunning;
  meta = with_meta_value(meta, "status", std::to_string(static_cast<int>(status)));
  meta = with_meta_value(meta, "end_time", ended ? std::to_string(now_ms()) : "null");
  write_file_atomically(run + kMeta, meta);
}

std::string value_text(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), error == std::errc() ? end : text.data()};
}

// Whether the lines in `tail`, the file's end from a line's begin, contain the cut: the first line
// is of a step before first_step. Then `keep` is the number of bytes before the cut.
bool find_cut(std::string_view tail, std::int64_t first_step, bool from_begin, std::size_t& keep) {
  keep = 0;
  bool before = from_begin;
  for (std::size_t at = 0; at < tail.size();) {
    const std::size_t end = tail.find('\n', at);
    if (end == std::string_view::npos) break;  // cut short by a crash
    const std::int64_t step = step_of_line(tail.substr(at, end - at));
    if (step >= first_step) break;
    before = true;
    keep = end + 1;
    at = end + 1;
  }
  return before;
}

// Cuts the lines of first_step and later steps, which end the file. Reads only the file's end.
void cut_metric(const std::string& path, std::int64_t first_step) {
  const Descriptor file = open_descriptor(path, O_RDWR);
  if (!file) fail_in_store("open", path, errno);
  const off_t size = ::lseek(file.get(), 0, SEEK_END);
  for (off_t window = off_t{1} << 16;; window *= 4) {
    const off_t begin = std::max<off_t>(0, size - window);
    std::string bytes(static_cast<std::size_t>(size - begin), '\0');
    const ssize_t got = ::pread(file.get(), bytes.data(), bytes.size(), begin);
    if (got < 0) fail_in_store("read", path, errno);
    bytes.resize(static_cast<std::size_t>(got));
    const std::size_t line = begin == 0 ? 0 : bytes.find('\n') + 1;
    std::size_t keep = 0;
    if (!find_cut(std::string_view(bytes).substr(line), first_step, begin == 0, keep)) continue;
    const off_t end = begin + static_cast<off_t>(line + keep);
    // MLflow refuses a run with an empty metric.
    const int error = end == 0 ? ::unlink(path.c_str()) : ::ftruncate(file.get(), end);
    if (error != 0) fail_in_store("cut", path, errno);
    return;
  }
}

}  // namespace

MlflowRun::MlflowRun(const MlflowOptions& options, std::int64_t first_step) {
  failpoint("mlflow.open");
  make_folders(options.dir);
  std::error_code failed;
  const std::string root = fs::canonical(options.dir, failed).string();
  if (failed) fail_in_store("open", options.dir, failed.value());
  if (first_step > 1) path_ = noted_run(options.output_dir);
  if (!path_.empty() && lies_in(path_, root)) {
    reopen(first_step);
  } else {
    create(options, experiment_in(root));
  }
  write_facts(options);
}

void MlflowRun::reopen(std::int64_t first_step) {
  std::vector<std::string> paths;
  std::error_code missing;
  for (const auto& entry : fs::recursive_directory_iterator(path_ + "/metrics", missing)) {
    if (entry.is_regular_file()) paths.push_back(entry.path().string());
  }
  for (const std::string& path : paths) cut_metric(path, first_step);
  set_status(path_, MlflowStatus::kRunning);
}

void MlflowRun::create(const MlflowOptions& options, const std::string& experiment) {
  const MlflowRunMeta meta{.experiment = fs::path(experiment).filename().string(),
                           .run = new_run_id(),
                           .name = run_name(options.output_dir),
                           .user = user_name(),
                           .artifact_uri = "",
                           .start_ms = now_ms()};
  path_ = experiment + "/" + meta.run;
  for (const char* const folder : {"/artifacts", "/metrics", "/params", "/tags"}) {
    make_folders(path_ + folder);
  }
  MlflowRunMeta placed = meta;
  placed.artifact_uri = file_uri(path_ + "/artifacts");
  write_file_atomically(path_ + kMeta, run_meta_text(placed));
  write_file_atomically(options.output_dir + kPointer, path_ + "\n");
}

// A resumed run may have another configuration; the values are then those of the last start.
void MlflowRun::write_facts(const MlflowOptions& options) {
  for (const auto& [key, value] : options.params) {
    const std::string text = mlflow_value(value);
    const std::string name = "params/" + mlflow_name(key);
    std::error_code missing;
    if (fs::exists(path_ + "/" + name, missing) && text_of(path_ + "/" + name) == text) continue;
    place_file(path_, name, text);
  }
  std::error_code failed;
  const std::string output = fs::absolute(options.output_dir, failed).lexically_normal().string();
  const std::array<std::pair<const char*, std::string>, 5> tags{
      {{"mlflow.runName", run_name(options.output_dir)},
       {"mlflow.user", user_name()},
       {"mlflow.source.name", options.source},
       {"mlflow.source.type", "LOCAL"},
       {"sluice.output_dir", output}}};
  for (const auto& [key, value] : tags) {
    const std::string name = std::string("tags/") + key;
    // A tag that is there may be a user's, such as another name of the run.
    if (!fs::exists(path_ + "/" + name, failed)) place_file(path_, name, mlflow_value(value));
  }
}

void MlflowRun::append(std::span<const TimedRecord> records) {
  failpoint("mlflow.append");
  for (const TimedRecord& timed : records) {
    const std::string begin = std::to_string(timed.unix_ms) + " ";
    const std::string end = " " + std::to_string(timed.record.step) + "\n";
    for (const EventScalar& scalar : event_scalars(timed.record)) {
      metrics_[mlflow_name(scalar.tag)].kept += begin + value_text(scalar.value) + end;
    }
  }
  std::optional<IoError> first;
  for (auto& [name, metric] : metrics_) {
    try {
      flush(name, metric);
    } catch (const IoError& error) {
      if (!first) first = error;
    }
  }
  if (!first) return;
  drop_oldest();
  throw IoError(*first);
}

// A new file comes with its first line: MLflow refuses a run with an empty metric.
void MlflowRun::flush(const std::string& name, Metric& metric) {
  if (metric.kept.empty()) return;
  const std::string path = path_ + "/metrics/" + name;
  if (!metric.file) {
    metric.file = open_descriptor(path, O_WRONLY | O_APPEND);
    if (!metric.file && errno != ENOENT) fail_in_store("open", path, errno);
  }
  if (!metric.file) {
    place_file(path_, "metrics/" + name, metric.kept);
  } else {
    append_whole(metric.file.get(), metric.kept, path, kSetting);
  }
  metric.kept.clear();
}

std::size_t MlflowRun::kept_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [name, metric] : metrics_) bytes += metric.kept.size();
  return bytes;
}

void MlflowRun::drop_oldest() {
  if (kept_bytes() <= kMostKept) return;
  for (auto& [name, metric] : metrics_) {
    const std::size_t half = metric.kept.find('\n', metric.kept.size() / 2);
    if (half != std::string::npos) metric.kept.erase(0, half + 1);
  }
}

void MlflowRun::end(MlflowStatus status) { set_status(path_, status); }

void end_mlflow_run(const std::string& output_dir, MlflowStatus status) {
  const std::string run = noted_run(output_dir);
  if (run.empty()) return;
  const std::string running = std::to_string(static_cast<int>(MlflowStatus::kRunning));
  if (meta_value(text_of(run + kMeta), "status") == running) set_status(run, status);
}

}  // namespace sluice
