// Time of a training step by lane, beside the machine's own matrix products: read from the files of
// a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/bench/summary.hpp"

namespace sluice {

// A lane of rank 0's executing thread. The lanes add up to the step.
struct StepLane {
  std::string name;  // forward, backward, loss_head, comm_waited, optimizer, data, other
  Summary ms;
  double floor_ms = 0;  // its model FLOPs at the measured GEMM rate
  double left_ms = 0;   // ms.median - floor_ms
};

struct StepBenchRun {
  std::string config;  // as given
  std::string run_dir;
  int ranks = 1;
  std::string dtype;
  std::int64_t warmup = 0;      // steps not counted
  double gemm_flops_per_s = 0;  // measured after the run, where the machine was quiet; 0: not
  double loss_head_share = 0;   // of the model's FLOPs
};

struct StepBenchResult {
  StepBenchRun run;
  Summary step_ms;
  double tokens_per_s = 0;      // all ranks
  double flops_per_step = 0;    // model FLOPs of one rank
  double flops_per_s = 0;       // of one rank
  double gemm_flops_per_s = 0;  // the better of the run's own measurement and run.gemm_flops_per_s
  double of_gemm = 0;           // flops_per_s / gemm_flops_per_s
  double floor_ms = 0;          // flops_per_step / gemm_flops_per_s
  std::int64_t device_peak_bytes = 0;    // 0 on a GPU, whose allocator is not counted
  std::int64_t resident_peak_bytes = 0;  // of rank 0's process
  std::vector<StepLane> lanes;
  std::string limit;  // what limits it, one sentence
};

// Reads metrics.jsonl (all steps after the warm-up) and trace.json (the last step's division of the
// forward into blocks and loss head). Throws IoError if these are missing or invalid.
[[nodiscard]] StepBenchResult read_step_bench(const StepBenchRun& run);

[[nodiscard]] std::string describe(const StepBenchResult& result);  // a table
[[nodiscard]] std::string to_json(const StepBenchResult& result);

}  // namespace sluice
