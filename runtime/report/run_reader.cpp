#include "runtime/report/run_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/posix/descriptor.hpp"
#include "base/posix/io_error.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// The folder of a run that `path` names.
std::string folder_of(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    throw IoError(
        "cannot report on " + path + ": there is no such folder; give the output.dir of a run",
        path, ENOENT);
  }
  if (fs::is_directory(path, ignored)) return path;
  if (fs::path(path).filename() == "metrics.jsonl") {
    const std::string parent = fs::path(path).parent_path().string();
    return parent.empty() ? "." : parent;
  }
  throw IoError("cannot report on " + path + ": it is no folder of a run; give an output.dir",
                path);
}

constexpr const char* kCheck = "; check that it is a file, and may be read";
constexpr const char* kNoStep = "no JSON object with a step of 1 or more; the line was left out";

}  // namespace

std::string Damage::text() const {
  std::string place = file;
  if (line > 0) place += ":" + std::to_string(line);
  return place + ": " + what;
}

void RunData::add_damage(Damage found) {
  ++damaged_[found.file];
  if (damage.size() < kMostDamage) damage.push_back(std::move(found));
}

void RunData::forget_damage(const std::string& file) {
  damaged_.erase(file);
  std::erase_if(damage, [&file](const Damage& found) { return found.file == file; });
}

std::int64_t RunData::damaged() const {
  std::int64_t all = 0;
  for (const auto& [file, count] : damaged_) all += count;
  return all;
}

std::optional<std::string> RunReader::WholeFile::changed() {
  struct stat info {};
  std::string now;
  if (::stat(path.c_str(), &info) == 0) {
    now = std::to_string(info.st_dev) + " " + std::to_string(info.st_ino) + " " +
          std::to_string(info.st_size) + " " + std::to_string(info.st_mtim.tv_sec) + "." +
          std::to_string(info.st_mtim.tv_nsec);
  } else if (errno != ENOENT && errno != ENOTDIR) {
    throw_io_error("read", path, errno, kCheck);
  }
  if (now == state) return std::nullopt;
  std::string text;
  if (!now.empty()) {
    const Descriptor file = open_descriptor(path, O_RDONLY);
    const int error = file ? read_to_end(file.get(), text) : errno;
    if (error != 0) throw_io_error("read", path, error, kCheck);
  }
  state = now;  // what could not be read is tried again
  return text;
}

RunReader::RunReader(const std::string& folder)
    : metrics_(folder + "/metrics.jsonl"),
      events_(folder + "/events.jsonl"),
      config_{folder + "/config.yaml", ""},
      plan_{folder + "/plan.json", ""},
      trace_{folder + "/trace.json", ""},
      plan_trace_{folder + "/plan_trace.json", ""} {
  data_.folder = folder;
  (void)refresh();
  if (!metrics_.exists() && !events_.exists() && config_.state.empty() && plan_.state.empty()) {
    throw IoError("cannot report on " + folder +
                      ": it has no metrics.jsonl, events.jsonl, config.yaml or plan.json; give "
                      "the output.dir of a run",
                  folder, ENOENT);
  }
}

bool RunReader::refresh() {
  const bool metrics = read_metrics();
  const bool events = read_events();
  const bool whole = read_whole_files();
  const bool timeline = read_timeline();
  return metrics || events || whole || timeline;
}

bool RunReader::read_metrics() {
  const std::string& path = metrics_.path();
  return metrics_.read(
      {.line =
           [&](std::string_view text, std::int64_t number) {
             if (parse_step_line(text, line_)) {
               data_.steps.add(line_);
             } else {
               data_.add_damage({path, number, kNoStep});
             }
           },
       .too_long =
           [&](std::int64_t number) {
             data_.add_damage({path, number, "longer than 1 MiB; the line was left out"});
           },
       .anew =
           [&] {
             data_.steps = {};
             data_.forget_damage(path);
           }});
}

bool RunReader::read_events() {
  const std::string& path = events_.path();
  const bool changed = events_.read(
      {.line =
           [&](std::string_view text, std::int64_t number) {
             if (const auto event = parse_event_line(text)) {
               data_.events.push_back(*event);
             } else if (!text.empty()) {
               data_.add_damage(
                   {path, number, "no JSON object with an event; the line was left out"});
             }
           },
       .too_long =
           [&](std::int64_t number) {
             data_.add_damage({path, number, "longer than 1 MiB; the line was left out"});
           },
       .anew =
           [&] {
             data_.events.clear();
             data_.forget_damage(path);
           }});
  data_.has_events = events_.exists();
  return changed;
}

bool RunReader::read_whole_files() {
  bool changed = false;
  if (const auto text = config_.changed()) {
    data_.config = parse_config_lines(*text);
    changed = true;
  }
  if (const auto text = plan_.changed()) {
    data_.plan = text->empty() ? std::nullopt : parse_plan(*text);
    data_.forget_damage(plan_.path);
    if (!text->empty() && !data_.plan) {
      data_.add_damage({plan_.path, 0, "no plan of a run; the file was left out"});
    }
    changed = true;
  }
  return changed;
}

bool RunReader::read_timeline() {
  bool changed = false;
  const auto read = [&](WholeFile& file, std::string& timeline) {
    const auto text = file.changed();
    if (!text) return;
    timeline = text->empty() ? "" : timeline_json(*text);
    data_.forget_damage(file.path);
    if (!text->empty() && timeline.empty()) {
      data_.add_damage({file.path, 0, "no trace with slices; the file was left out"});
    }
    changed = true;
  };
  read(trace_, measured_);
  read(plan_trace_, planned_);
  if (!changed) return false;
  data_.timeline_measured = !measured_.empty();
  data_.timeline = data_.timeline_measured ? measured_ : planned_;
  return true;
}

std::vector<RunReader> open_runs(const std::vector<std::string>& paths) {
  std::vector<RunReader> runs;
  runs.reserve(paths.size());
  for (const std::string& path : paths) runs.emplace_back(folder_of(path));
  // Folders are added to all names from the right until the names differ, or nothing is left.
  for (std::size_t depth = 1;; ++depth) {
    std::map<std::string, int> seen;
    bool more = false;
    for (RunReader& run : runs) {
      const fs::path whole = fs::absolute(run.data().folder).lexically_normal();
      std::vector<std::string> parts;
      for (const fs::path& part : whole) {
        if (!part.empty() && part != "/") parts.push_back(part.string());
      }
      const std::size_t taken = std::min(depth, parts.size());
      std::string name;
      for (std::size_t i = parts.size() - taken; i < parts.size(); ++i) {
        name += (name.empty() ? "" : "/") + parts[i];
      }
      more = more || taken < parts.size();
      run.set_name(name.empty() ? "/" : name);
      ++seen[run.data().name];
    }
    if (seen.size() == runs.size() || !more) return runs;
  }
}

}  // namespace sluice
