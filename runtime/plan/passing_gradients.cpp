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

// Bytes of the unit's passing gradients, or of those that need no norm.
std::int64_t passing_bytes(const StepShape& shape, int u, bool without_norm) {
  std::int64_t bytes = 0;
  for (const int g : nth(shape.units, u).groups) {
    const GroupShape& group = nth(shape.groups, g);
    if (!without_norm || needs_no_norm(group)) bytes += group.passing_gradient_bytes;
  }
  return bytes;
}

// Bytes by which the peak of the backward falls if gradients pass, without gaps. As long as they
// run, units have their workspace, the kept activations of the units up to them, and the passing
// gradients of the units from them on. Gradients cannot take the memory of small blocks, so these
// do not count. A group that is updated in the backward (`updates`) has its
// update behind its own; if gradients are sent, two backwards later, for its reduction to complete.
std::int64_t saved_bytes(const StepShape& shape, bool updates) {
  const int head = static_cast<int>(shape.units.size()) - 1;
  const int first_updated = shape.dp > 1 ? 3 : 1;  // units behind the one that runs
  const std::int64_t flights = shape.layer_major ? shape.micro_batches : 1;
  const auto kept_of = [&](int u) {
    const UnitMemory& memory = nth(shape.units, u).memory;
    const std::int64_t kept = shape.recompute ? 0 : memory.kept;
    const std::int64_t kept_small = shape.recompute ? 0 : memory.kept_small;
    const std::int64_t leaving = leaving_bytes(shape, u);
    const std::int64_t small = leaving > 0 ? 0 : small_bytes(shape, memory.output) + kept_small;
    return memory.output + kept - leaving - small;
  };
  std::int64_t kept = 0, all = 0, passed = 0, peak = 0, passing_peak = 0;
  for (int u = 0; u < head; ++u) kept += kept_of(u);
  for (int u = head; u >= 0; --u) {
    const UnitMemory& memory = nth(shape.units, u).memory;
    const std::int64_t workspace =
        u == head ? memory.backward_peak + memory.scratch
                  : (shape.recompute ? memory.recompute_peak : memory.backward_peak);
    all += passing_bytes(shape, u, false);
    passed += passing_bytes(shape, u, false);
    const int updated = u + first_updated;
    if (updates && updated <= head) passed -= passing_bytes(shape, updated, true);
    peak = std::max(peak, kept * flights + workspace);
    passing_peak = std::max(passing_peak, kept * flights + workspace + passed);
    if (u < head) kept -= kept_of(u);
  }
  return peak + all - passing_peak;
}

// The backwards of a group follow each other.
bool in_a_row(const StepShape& shape) { return shape.micro_batches == 1 || shape.layer_major; }

// Of the first and the last unit, the number that have the group.
int ends_with(const StepShape& shape, int g) {
  const auto has = [g](const UnitShape& unit) {
    return std::find(unit.groups.begin(), unit.groups.end(), g) != unit.groups.end() ? 1 : 0;
  };
  return has(shape.units.front()) + has(shape.units.back());
}

enum class Which { kNone, kBlocks, kAll };

// Chooses the gradients that pass. kAll: those of the first and the last unit too, but not of a
// group of both or of replicas, which exist until the norm.
void choose(StepShape& shape, Which which, bool small) {
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    GroupShape& group = nth(shape.groups, g);
    const std::int64_t elems = lasting_gradient_elems(shape, g);
    const std::int64_t bytes = cuda_block_bytes(gradient_bytes(shape, g, elems));
    const int ends = ends_with(shape, g);
    const bool waits = ends == 2 || group.add_replicas;
    const bool chosen = ends == 0 ? which != Which::kNone : which == Which::kAll && !waits;
    const bool passes = chosen && !group.frozen && gradient_streams(shape, g) == 1 &&
                        (small || bytes > kSmallCudaBlock);
    group.passing_gradient_bytes = passes ? bytes : 0;
  }
}

// Room for the gaps that gradients of blocks leave.
std::int64_t gap_bytes(const StepShape& shape) {
  std::int64_t largest = 0;
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    if (ends_with(shape, g) > 0) continue;
    largest = std::max(largest, nth(shape.groups, g).passing_gradient_bytes);
  }
  return largest > 0 ? cuda_gap_bytes(largest) : 0;
}

}  // namespace

void round_gradients(StepShape& shape) {
  const bool may = in_a_row(shape) && may_round_gradients(shape);
  const auto is_of = [](const UnitShape& unit, int g) {
    return std::ranges::count(unit.groups, g) > 0;
  };
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    GroupShape& group = nth(shape.groups, g);
    const bool table_or_head = (shape.begins_model() && is_of(shape.units.front(), g)) ||
                               (shape.ends_model() && is_of(shape.units.back(), g));
    group.rounds_gradients = may && !table_or_head && !group.frozen && !group.add_replicas;
  }
}

void pass_gradients(StepShape& shape) {
  const bool may = shape.on_gpu && in_a_row(shape) && may_pass_gradients(shape);
  const bool always = may && failpoint("plan.passing_gradients") == FailpointOutcome::kPoison;
  choose(shape, may ? Which::kBlocks : Which::kNone, always);
  const std::int64_t saved = saved_bytes(shape, false);
  const std::int64_t gap = gap_bytes(shape);
  const bool passes = always || saved > gap;
  if (may && shape.updates_in_backward) {
    choose(shape, Which::kAll, always);
    const std::int64_t more = saved_bytes(shape, true) - (passes ? saved : 0);
    const bool any = std::any_of(shape.groups.begin(), shape.groups.end(), needs_no_norm);
    shape.passing_gap_bytes = gap_bytes(shape);
    if (any && (always || more > shape.passing_gap_bytes)) return;
  }
  shape.updates_in_backward = false;
  choose(shape, passes ? Which::kBlocks : Which::kNone, always);
  shape.passing_gap_bytes = passes ? gap : 0;
}

}  // namespace sluice
