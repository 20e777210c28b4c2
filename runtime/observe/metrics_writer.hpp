// metrics.jsonl: one StepRecord per line, appended. Not thread-safe: one writer, on rank 0.
//
// A fresh run renames an existing file to metrics.jsonl.N, so nothing is lost or mixed. A run that
// resumes at step k keeps the lines of earlier steps and drops the rest: steps after the last
// checkpoint, and a line that a crash cut short.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/observe/file_io.hpp"
#include "runtime/observe/step_record.hpp"

namespace sluice {

class MetricsWriter {
 public:
  // `first_step` is the first step that will be written; 1 means a fresh run. Throws IoError.
  explicit MetricsWriter(std::string path, std::int64_t first_step = 1);

  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  // On return the system has the line. If the file cannot be written (no space), it still ends with
  // its last whole line, the log says so once, and up to kMostKept bytes of lines wait until they
  // can be written. The log says once if the file was removed or moved: later lines stay with the
  // file that was opened.
  void write(const StepRecord& record);
  [[nodiscard]] std::size_t kept_bytes() const { return kept_.size(); }

  static constexpr std::size_t kMostKept = std::size_t{1} << 20;

 private:
  void flush();
  void look_for_file();

  std::string path_;
  Descriptor file_;
  std::string kept_;  // whole lines, not written yet
  bool failed_ = false;
  bool gone_ = false;  // the file was removed or moved
};

}  // namespace sluice
