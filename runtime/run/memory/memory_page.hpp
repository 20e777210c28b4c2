// A rank's memory after a step as one self-contained HTML page: each tier by tag over the step, its
// planned and measured peaks, the long-lived arrays and the buffers. Pure.
#pragma once

#include <string>

#include "runtime/observe/step_record.hpp"
#include "runtime/plan/plan_text.hpp"
#include "runtime/run/memory/torch_snapshot.hpp"

namespace sluice {

struct MemoryPageInput {
  const Program& program;
  const MemoryPlan& plan;
  const std::vector<OpTiming>& timings;  // of the step
  const StepRecord& record;              // of the step: measured counters
  std::string run;                       // its folder
  int rank = 0;
};

[[nodiscard]] std::string memory_page(const MemoryPageInput& input, const TierMemories& tiers);

}  // namespace sluice
