// Snapshots of a rank's memory at chosen steps (output.memory_snapshot), and on rank 0 whenever the
// file output.dir/snapshot-now appears. Each is two files:
//
//   output.dir/memory/step-12-rank-0.html     a page (memory_page.hpp)
//   output.dir/memory/step-12-rank-0.pickle   for PyTorch's memory viewer (torch_snapshot.hpp)
//
// A snapshot that cannot be written is a warning; the run goes on. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/observe/step_record.hpp"
#include "runtime/plan/plan_text.hpp"
#include "runtime/program/executor.hpp"

namespace sluice {

class MemorySnapshots {
 public:
  MemorySnapshots(std::vector<std::int64_t> steps, std::string output_dir, int rank);

  // Whether this step is one of the steps, or snapshot-now asks for the step (the file is removed).
  [[nodiscard]] bool takes(std::int64_t step);

  struct Step {
    const Program& program;
    const MemoryPlan& plan;
    const std::vector<std::string>& group_names;
    const std::vector<OpTiming>& timings;
    const StepRecord& record;
  };
  struct Result {
    std::string path;     // of the page, also if the page could not be written
    std::string failure;  // why a file could not be written; empty: both files are written
  };
  [[nodiscard]] Result write(const Step& step) const;

 private:
  [[nodiscard]] bool requested();

  const std::vector<std::int64_t> steps_;
  const std::string output_dir_;
  const int rank_;
  std::chrono::steady_clock::time_point next_look_;
};

}  // namespace sluice
