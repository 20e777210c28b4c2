// The layout of a rank's step, from which its programs are written.
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
  // FLOP of all ranks: 3 x forward, without recomputation. 0 in a plan from profiles.
  double model_flops_per_step = 0;
};

}  // namespace sluice
