// What a run leaves behind: the `output:` section.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct OutputOptions {
  std::string dir;           // empty: runs/<name of the configuration>
  bool tensorboard = false;  // tensorboard/: event files with what metrics.jsonl has
  std::string mlflow;        // folder of MLflow's file store; empty: none
  bool trace = false;        // trace.json of the last step, for chrome://tracing and Perfetto
  bool timers = false;       // the log has the timers of every train.log_every steps
  bool nvtx = false;         // operations as NVTX ranges, for Nsight Systems
  std::vector<std::int64_t> memory_snapshot;  // steps whose memory is written to memory/
};

}  // namespace sluice
