#include "runtime/plan/passing_gradients.hpp"

#include <algorithm>
#include <cstdint>

#include "base/failpoint.hpp"
#include "base/index.hpp"
#include "runtime/model/gpu_path.hpp"

namespace sluice {
namespace {

bool needs_no_norm(const GroupShape& group) {
  return group.passing_gradient_bytes > 0 && !group.add_replicas;
}

// Passing gradients that exist while unit u runs its backward: those of the units from it on. A
// group that is updated in the backward has its update behind its own; if gradients are sent, two
// backwards later, for its reduction to complete.
std::int64_t passing_bytes(const StepShape& shape, int u, bool updates) {
  const int delay = shape.dp > 1 ? 2 : 0;
  std::int64_t bytes = 0;
  for (int v = u; v < static_cast<int>(shape.units.size()); ++v) {
    for (const int g : nth(shape.units, v).groups) {
      const GroupShape& group = nth(shape.groups, g);
      const bool updated = updates && needs_no_norm(group) && v > u + delay;
      if (!updated) bytes += group.passing_gradient_bytes;
    }
  }
  return bytes;
}

// Bytes by which the peak of the backward falls if gradients pass, without gaps. As long as they
// run, units have their workspace, the kept activations of the units up to them, and passing
// gradients.
std::int64_t saved_bytes(const StepShape& shape, std::int64_t all, bool updates) {
  const int head = static_cast<int>(shape.units.size()) - 1;
  const std::int64_t flights = shape.layer_major ? shape.micro_batches : 1;
  std::int64_t kept = 0, peak = 0, passing_peak = 0;
  for (int u = 0; u <= head; ++u) {
    const UnitMemory& memory = nth(shape.units, u).memory;
    if (u < head) {
      kept += memory.output + (shape.recompute ? 0 : memory.kept) - leaving_bytes(shape, u);
    }
    const std::int64_t workspace =
        u == head ? memory.backward_peak + memory.scratch
                  : (shape.recompute ? memory.recompute_peak : memory.backward_peak);
    const std::int64_t passed = passing_bytes(shape, u, updates);
    peak = std::max(peak, kept * flights + workspace);
    passing_peak = std::max(passing_peak, kept * flights + workspace + passed);
  }
  return peak + all - passing_peak;
}

}  // namespace

void pass_gradients(StepShape& shape) {
  const bool in_a_row = shape.micro_batches == 1 || shape.layer_major;
  const bool may = shape.on_gpu && in_a_row && may_pass_gradients(shape);
  const bool always = failpoint("plan.passing_gradients") == FailpointOutcome::kPoison;
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    GroupShape& group = nth(shape.groups, g);
    const std::int64_t bytes = cuda_block_bytes(lasting_gradient_elems(shape, g) * 4);
    const bool passes = may && !group.frozen && gradient_streams(shape, g) == 1 &&
                        (always || !is_small_cuda_block(bytes));
    group.passing_gradient_bytes = passes ? bytes : 0;
  }
  for (const UnitShape* const unit : {&shape.units.front(), &shape.units.back()}) {
    for (const int g : unit->groups) nth(shape.groups, g).passing_gradient_bytes = 0;
  }
  std::int64_t all = 0, largest = 0;
  for (const GroupShape& group : shape.groups) {
    all += group.passing_gradient_bytes;
    largest = std::max(largest, group.passing_gradient_bytes);
  }
  const std::int64_t gap = largest > 0 ? cuda_gap_bytes(largest) : 0;
  const std::int64_t saved = saved_bytes(shape, all, false);
  const std::int64_t more = saved_bytes(shape, all, true) - std::max<std::int64_t>(saved, 0);
  const bool may_update = shape.updates_in_backward &&
                          std::any_of(shape.groups.begin(), shape.groups.end(), needs_no_norm);
  shape.updates_in_backward = may_update && (always || more > gap);
  const bool saves = always || saved > gap || shape.updates_in_backward;
  shape.passing_gap_bytes = saves ? gap : 0;
  if (saves) return;
  for (GroupShape& group : shape.groups) group.passing_gradient_bytes = 0;
}

}  // namespace sluice
