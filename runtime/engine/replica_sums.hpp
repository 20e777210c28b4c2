// How gradients that several ranks hold are summed over these ranks, for runs and plans. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/model/model_spec.hpp"
#include "runtime/program/step_shape.hpp"

namespace sluice {

// Elements at a time of which a rank gets every replica.
inline constexpr std::int64_t kReplicaPiece = std::int64_t{1} << 18;

// Whether a GPU sums `elems` gradients of a group without a copy: a reduce-scatter and an
// all-gather where the gradients are. A small group, or one of some ranks of the communicator only,
// takes one all-gather into staging memory.
[[nodiscard]] inline bool sums_in_place(const StepShape& shape, const ModelSpec& spec,
                                        std::size_t g, std::int64_t elems) {
  const ParamGroup& group = spec.groups[g];
  const bool by_all = group.replicas == Replicas::kTied || group.replica_ranks == shape.tensor;
  return spec.options.on_gpu && by_all && shape.placement.gradients == Tier::kDevice &&
         elems > kReplicaPiece;
}

}  // namespace sluice
