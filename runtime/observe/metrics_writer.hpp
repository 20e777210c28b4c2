// metrics.jsonl: one StepRecord per line, appended. Not thread-safe: one writer, on rank 0.
//
// A run that starts anew moves a former file to metrics.jsonl.1, so nothing of an earlier run is
// lost or mixed in. A run that resumes at step k keeps the lines of steps before k and drops the
// rest: the steps done after the last checkpoint, and a line that a crash cut short.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/observe/file_io.hpp"
#include "runtime/observe/step_record.hpp"

namespace sluice {

class MetricsWriter {
 public:
  // `first_step` is the first step that will be written; 1 starts anew. Throws IoError.
  explicit MetricsWriter(std::string path, std::int64_t first_step = 1);

  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  // The line is with the system when this returns. Where it cannot be written (no space) the file
  // still ends with its last whole line, the log says so once, and up to kMostKept bytes of lines
  // are kept until they can be.
  void write(const StepRecord& record);
  [[nodiscard]] std::size_t kept_bytes() const { return kept_.size(); }

  static constexpr std::size_t kMostKept = std::size_t{1} << 20;

 private:
  void flush();

  std::string path_;
  UniqueFd file_;
  std::string kept_;  // whole lines, not written yet
  bool failed_ = false;
};

}  // namespace sluice
