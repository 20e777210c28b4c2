// The mesh: the `parallel:` section.
#pragma once

#include <cstdint>

namespace sluice {

enum class PipelineSchedule { kGpipe, k1f1b, kInterleaved, kZeroBubble };

struct ParallelOptions {
  int tensor = 1;
  bool sequence = false;
  int pipeline = 1;
  int virtual_stages = 1;
  PipelineSchedule schedule = PipelineSchedule::k1f1b;
  int data = 0;  // 0: auto = world / (tensor x pipeline)
};

}  // namespace sluice
