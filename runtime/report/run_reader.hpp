// Reads the files of a run's folder, and later what a running run has added. Not thread-safe.
//
//   metrics.jsonl   followed: only new lines are read      config.yaml   read again when it changed
//   events.jsonl    followed                               plan.json     likewise
//                                                          trace.json, or plan_trace.json: likewise
//
// A missing file is no error, so runs of older versions and runs that have just begun are read too.
// Damaged lines and files are listed and passed over.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/report/line_follower.hpp"
#include "runtime/report/run_config_lines.hpp"
#include "runtime/report/run_files.hpp"
#include "runtime/report/step_columns.hpp"

namespace sluice {

struct Damage {
  std::string file;
  std::int64_t line = 0;  // 0: the whole file
  std::string what;
  [[nodiscard]] std::string text() const;  // "run/metrics.jsonl:17: ..."
};

class RunData {
 public:
  std::string folder;
  std::string name;  // unique among the runs of a report
  StepColumns steps;
  std::vector<EventLine> events;
  bool has_events = false;  // events.jsonl is there
  std::vector<ConfigLine> config;
  std::optional<PlanFigures> plan;
  std::string timeline;            // as timeline_json(); empty: none
  bool timeline_measured = false;  // false: the plan alone
  std::vector<Damage> damage;      // at most kMostDamage

  static constexpr std::size_t kMostDamage = 100;
  void add_damage(Damage found);
  void forget_damage(const std::string& file);
  // Number of damaged lines and files, listed or not.
  [[nodiscard]] std::int64_t damaged() const;

 private:
  std::map<std::string, std::int64_t> damaged_;  // by file
};

class RunReader {
 public:
  // Throws IoError if the folder holds nothing of a run.
  explicit RunReader(const std::string& folder);

  // Reads what changed since the last call. Returns whether anything did. Throws IoError if a file
  // cannot be read.
  bool refresh();
  [[nodiscard]] const RunData& data() const { return data_; }
  void set_name(std::string name) { data_.name = std::move(name); }

 private:
  // A small file and its state at the last reading.
  struct WholeFile {
    std::string path;
    std::string state;  // device, inode, size and time; empty: the file is missing
    // The text if the file changed since the last call; nullopt: it did not. Missing: empty.
    std::optional<std::string> changed();
  };

  bool read_metrics();
  bool read_events();
  bool read_whole_files();
  bool read_timeline();

  RunData data_;
  LineFollower metrics_, events_;
  WholeFile config_, plan_, trace_, plan_trace_;
  std::string measured_, planned_;  // timelines of the two traces
  StepLine line_;
};

// Readers of runs by their folders, or by their metrics.jsonl. Each gets a name of its own: the
// last folders of its path, as many as make the names differ. Throws IoError.
[[nodiscard]] std::vector<RunReader> open_runs(const std::vector<std::string>& paths);

}  // namespace sluice
