// Which placements of states fit on which ZeRO stage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan/planner.hpp"

namespace sluice {

// The fit table: rows are offload targets, columns stages 0-3.
struct FitCell {
  bool possible = false;  // the combination has a meaning
  std::string refused;    // why the model or mesh excludes the combination; empty: planned
  bool fits = false;
  std::int64_t device = 0, host = 0, nvme = 0;  // peaks, of the device with NCCL's buffers
  double step_s = 0;
};
struct FitRow {
  std::string name;
  std::vector<FitCell> stages;
};
[[nodiscard]] std::vector<FitRow> compare(Planner& planner, const PlanQuestion& question);

}  // namespace sluice
