#include "runtime/program/write/device_updates.hpp"

#include <utility>

#include "base/index.hpp"
#include "runtime/program/write/param_window.hpp"

namespace sluice {

DeviceUpdates::DeviceUpdates(ProgramBuilder& builder, const StepShape& shape, GradFlow& grads)
    : builder_(builder), shape_(shape), grads_(grads), updated_(shape.groups.size(), false) {}

void DeviceUpdates::follow(std::vector<GradFlow::Summed> summed) {
  if (!shape_.updates_in_backward) return;
  if (shape_.dp > 1) std::swap(reducing_, summed);
  for (GradFlow::Summed& group : summed) {
    const BufferId gradients = grads_.take_passing(group.group);
    if (gradients < 0) continue;
    std::erase_if(group.by, [this](OpId op) { return builder_.op(op).lane == Lane::kCompute; });
    builder_.emit({.kind = OpKind::kUpdate,
                   .group = group.group,
                   .in_backward = true,
                   .waits = std::move(group.by),
                   .dead_after = {gradients}});
    nth(updated_, group.group) = true;
  }
}

// On a GPU the last update launches all of them, so it frees their gradients.
void DeviceUpdates::finish(OpId norm) {
  std::vector<int> groups = groups_by_first_use(shape_);
  std::erase_if(groups, [this](int g) { return device_elems(shape_, g) == 0 || nth(updated_, g); });
  for (const int g : groups) {
    Op update{.kind = OpKind::kUpdate, .group = g, .waits = {norm}};
    if (g == groups.back()) update.dead_after = grads_.passing();
    builder_.emit(std::move(update));
  }
}

}  // namespace sluice
