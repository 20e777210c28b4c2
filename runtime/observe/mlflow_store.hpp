// One run in MLflow's file store (output.mlflow), as MLflow's FileStore reads the folder:
//
//   DIR/<experiment>/meta.yaml                     name and place of the experiment
//   DIR/<experiment>/<run>/meta.yaml               status, start and end
//   DIR/<experiment>/<run>/params/train.steps      a value: the resolved configuration
//   DIR/<experiment>/<run>/tags/mlflow.runName     a value
//   DIR/<experiment>/<run>/metrics/train/loss      "<Unix time in ms> <value> <step>" a line
//
// The file `mlflow-run` in output.dir names the run's folder. A resumed run goes on in that folder,
// and the launcher finds the run that its ranks left. Metric files only grow; a resume cuts lines
// of steps that will come again. Not thread-safe. Every failure is an IoError.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/observe/file_io.hpp"
#include "runtime/observe/step_record.hpp"

namespace sluice {

// Numbers of MLflow's RunStatus.
enum class MlflowStatus { kRunning = 1, kFinished = 3, kFailed = 4, kKilled = 5 };

struct MlflowOptions {
  std::string dir;         // output.mlflow; empty: no store
  std::string output_dir;  // the run's folder; its last part is the run's name in MLflow
  std::string source;      // path of the configuration
  // The resolved configuration: "train.steps" -> "2400".
  std::vector<std::pair<std::string, std::string>> params;
};

struct TimedRecord {
  std::int64_t unix_ms = 0;
  StepRecord record;
};

inline constexpr std::string_view kMlflowExperiment = "sluice";

// Longest param value in bytes. MLflow's limit is 6000 characters.
inline constexpr std::size_t kMostMlflowValue = 6000;

// The metric's name for a tag of event_scalars(). Characters that MLflow refuses become '_', and a
// checksum keeps changed names apart. "eval/loss/<set>" is "eval/loss.<set>": a file store cannot
// have a file and a folder of one name. Pure.
[[nodiscard]] std::string mlflow_name(std::string_view tag);
// The value as MLflow takes it: valid UTF-8, at most kMostMlflowValue bytes. Pure.
[[nodiscard]] std::string mlflow_value(std::string_view text);

class MlflowRun {
 public:
  // Opens the run that output_dir/mlflow-run names if `first_step` is above 1; else, or if the run
  // is not in options.dir or was deleted in MLflow, makes a new run. Its status is kRunning.
  MlflowRun(const MlflowOptions& options, std::int64_t first_step);

  // Adds the records of consecutive steps: one write for each metric. Lines that cannot be written
  // are kept, at most kMostKept bytes, and the next call tries again.
  void append(std::span<const TimedRecord> records);
  void end(MlflowStatus status);

  // DIR/<experiment>/<run>
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::size_t kept_bytes() const;

  static constexpr std::size_t kMostKept = std::size_t{1} << 20;

 private:
  struct Metric {
    Descriptor file;
    std::string kept;  // whole lines, not written yet
  };

  void reopen(std::int64_t first_step);
  void create(const MlflowOptions& options, const std::string& experiment);
  void write_facts(const MlflowOptions& options);
  void flush(const std::string& name, Metric& metric);
  void drop_oldest();

  std::string path_;
  std::map<std::string, Metric> metrics_;  // by name
};

// Sets the status of the run that output_dir/mlflow-run names, if its status is still kRunning: for
// the launcher, after its ranks have ended. Nothing happens without a run.
void end_mlflow_run(const std::string& output_dir, MlflowStatus status);

}  // namespace sluice
