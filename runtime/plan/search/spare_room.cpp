#include "runtime/plan/search/spare_room.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/plan/planned_run.hpp"

namespace sluice {

double fitting_on_device(const RunPlan& plan) {
  const StepShape& shape = plan.shape;
  const Placement& tiers = shape.placement;
  const auto spare = static_cast<double>(plan.memory.spare_of(Tier::kDevice));
  if (spare == 0 || plan.stages.size() > 1 || tiers.optimizer == Tier::kDevice ||
      tiers.parameters != Tier::kDevice || tiers.gradients != Tier::kDevice) {
    return 0;
  }
  double bytes = 0;
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    if (is_frozen(shape, g)) continue;
    bytes += static_cast<double>(owned_elems(shape, g) * device_state_bytes(shape, g));
  }
  const double most = 1 - tiers.device_fraction;
  return bytes > 0 ? std::clamp(std::floor(100 * spare / bytes) / 100, 0.0, most) : 0;
}

double fitting_on_host(const RunPlan& plan) {
  const StepShape& shape = plan.shape;
  const auto spare = static_cast<double>(plan.memory.spare_of(Tier::kHost));
  const bool may =
      shape.placement.optimizer == Tier::kNvme && !shape.placement.image && plan.stages.size() == 1;
  if (spare == 0 || !may) return 0;
  double elems = 0, there = 0;
  std::int64_t element_bytes = 0;  // of the group that needs most
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    const std::int64_t of_group = off_device_elems(shape, g);
    elems += static_cast<double>(of_group);
    if (optimizer_tier(shape, g) == Tier::kHost) there += static_cast<double>(of_group);
    if (of_group > 0) element_bytes = std::max(element_bytes, away_state_bytes(shape, g));
  }
  if (elems == 0) return 0;
  there += spare / static_cast<double>(element_bytes);
  return std::min(0.99, std::floor(100 * there / elems) / 100);
}

}  // namespace sluice
