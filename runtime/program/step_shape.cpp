#include "runtime/program/step_shape.hpp"

#include <algorithm>

#include "base/index.hpp"
#include "runtime/program/write/use_order.hpp"
#include "zero/partition_plan.hpp"

namespace sluice {
namespace {

bool writes(const UnitShape& unit, int group) {
  return std::find(unit.groups.begin(), unit.groups.end(), group) != unit.groups.end();
}

}  // namespace

bool has_backward(const StepShape& shape, int unit) {
  if (is_pipelined(shape)) return true;
  const auto trained = [&](const UnitShape& u) {
    return std::any_of(u.groups.begin(), u.groups.end(),
                       [&](int g) { return !is_frozen(shape, g); });
  };
  return std::any_of(shape.units.begin(), shape.units.begin() + unit + 1, trained);
}

std::int64_t leaving_bytes(const StepShape& shape, int unit) {
  const bool head = is_loss_head(shape, unit);
  // With gpipe all other forwards come before its backward, so its input leaves the device.
  const bool turns = shape.ends_model() && unit + 2 == static_cast<int>(shape.units.size()) &&
                     !(is_pipelined(shape) && shape.pipeline.schedule == PipelineSchedule::kGpipe);
  if (shape.placement.activations == Tier::kDevice || !has_input(shape, unit) || head || turns ||
      !has_backward(shape, unit)) {
    return 0;
  }
  const auto u = static_cast<std::size_t>(unit);
  const std::int64_t input = input_bytes(shape, unit);
  if (shape.recompute) return input;
  return shape.units[u].kept_moves ? input + shape.units[u].memory.kept : 0;
}

int gradient_streams(const StepShape& shape, int group) {
  if (!sums_micro_batches(shape) || is_frozen(shape, group)) return 1;
  const auto writers = std::count_if(shape.units.begin(), shape.units.end(),
                                     [group](const UnitShape& u) { return writes(u, group); });
  return std::max(1, static_cast<int>(writers));
}

int gradient_stream(const StepShape& shape, int unit, int group) {
  if (!sums_micro_batches(shape)) return 0;
  return static_cast<int>(std::count_if(shape.units.begin(), shape.units.begin() + unit,
                                        [group](const UnitShape& u) { return writes(u, group); }));
}

}  // namespace sluice
