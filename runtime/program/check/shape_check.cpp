#include "runtime/program/check/shape_check.hpp"

#include <algorithm>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "runtime/program/write/use_order.hpp"

namespace sluice {
namespace {

void check_pipeline(const StepShape& shape) {
  const PipelineShape& pipeline = shape.pipeline;
  check_pipeline_run(pipeline_run(shape));
  check(pipeline.stage >= 0 && pipeline.stage < pipeline.stages, "a stage of the pipeline");
  check(!pipeline.chunk_ends.empty() &&
            pipeline.chunk_ends.back() == static_cast<int>(shape.units.size()) &&
            std::is_sorted(pipeline.chunk_ends.begin(), pipeline.chunk_ends.end(),
                           std::less_equal<>()) &&
            pipeline.chunk_ends.front() > 0,
        "the chunks of a stage are runs of its units");
  check(pipeline.message_bytes > 0 && pipeline.boundary_bytes >= pipeline.message_bytes,
        "an activation between stages has bytes");
  if (shape.layer_major) {
    throw ConfigError(
        "train.accumulation_order: layer runs all micro-batches of a unit before the next unit, "
        "and parallel.pipeline = " +
        std::to_string(pipeline.stages) +
        " stages need a micro-batch as soon as it is made; use accumulation_order: micro");
  }
}

// Gradients that leave the device.
void check_gradients(const StepShape& shape) {
  const Placement& p = shape.placement;
  const bool rounds = p.gradients != Tier::kDevice && p.gradients_dtype != DType::kFloat32;
  if (rounds && sums_micro_batches(shape)) {
    throw ConfigError(
        "offload.gradients_dtype: bf16 rounds complete gradients, and the host adds those of " +
        std::to_string(shape.micro_batches) +
        " micro-batches; use train.accumulation_order: layer, or leave this out");
  }
  const bool replicas = std::any_of(shape.groups.begin(), shape.groups.end(),
                                    [](const GroupShape& group) { return group.add_replicas; });
  if (replicas && p.gradients == Tier::kNvme) {
    throw ConfigError(
        "offload.gradients: nvme: gradients of parameters that several tensor-parallel ranks or "
        "pipeline stages hold are added up before the norm, in memory; use offload.gradients: "
        "host");
  }
}

}  // namespace

void check_shape(const StepShape& shape) {
  if (is_pipelined(shape)) {
    check_pipeline(shape);
  } else {
    check(shape.units.size() >= 2, "a model has a unit before its loss head");
  }
  check(shape.dp > 0 && shape.micro_batches > 0 && shape.prefetch_units >= 0, "a step's counts");
  const bool whole = shape.stage < 2 || keeps_full_gradients(shape);
  const bool once = shape.reduce_every == ReduceEvery::kStep && shape.micro_batches > 1;
  check(!once || whole || shape.frozen || shape.layer_major,
        "ranks without full gradients reduce every micro-batch, or once in layer order");
  const Placement& p = shape.placement;
  check(p.parameters == Tier::kDevice || shape.stage == 3, "parameters leave in stage 3");
  check(p.gradients == Tier::kDevice || shape.stage >= 2, "gradients leave in stages 2 and 3");
  const bool only_states = p.parameters == Tier::kDevice && p.gradients == Tier::kDevice;
  check(shape.frozen || p.optimizer != Tier::kDevice || only_states,
        "parameters and gradients off the device are updated off it");
  check(!shape.rounds_master || (shape.stage == 3 && shape.dtype == DType::kFloat16 &&
                                 p.optimizer == Tier::kDevice && !shape.frozen),
        "gathers round master weights of stage 3 in fp16 that are on the device");
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    const GroupShape& group = nth(shape.groups, g);
    check(!group.rounds_gradients ||
              (may_round_gradients(shape) && !is_frozen(shape, g) && !group.add_replicas),
          "gradients are rounded where they are complete behind a backward");
    const std::int64_t bytes = group.passing_gradient_bytes;
    if (bytes == 0) continue;
    check(may_pass_gradients(shape) && gradient_streams(shape, g) == 1 && !is_frozen(shape, g),
          "gradients pass where a group has one array of them and is updated on the device");
    check(bytes >= gradient_bytes(shape, g, lasting_gradient_elems(shape, g)),
          "passing gradients fit into their memory");
  }
  check(!shape.updates_in_backward || may_pass_gradients(shape),
        "groups whose gradients pass are updated in the backward");
  check(p.device_fraction == 0 || only_states, "a share stays only of the states");
  if (!shape.frozen) check_gradients(shape);
}

}  // namespace sluice
