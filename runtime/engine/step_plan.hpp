// The layout of a rank's step: what its programs are written from.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/program/step_shape.hpp"
#include "zero/partition_plan.hpp"

namespace sluice {

struct StepPlan {
  std::vector<GroupPlan> groups;
  StepShape shape;
  std::optional<StepShape> decoding;  // of a sequence run in parts (write_decode_step)
  // Of all ranks: 3 x forward, whatever is recomputed. Of a plan from profiles: 0.
  double model_flops_per_step = 0;
};

}  // namespace sluice
