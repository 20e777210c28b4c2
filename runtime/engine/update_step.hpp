// The updates of one group's shard, as spans of the memory of its states' device.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/update/update_span.hpp"
#include "runtime/engine/group_store.hpp"
#include "zero/optimizer_options.hpp"

namespace sluice {

struct UpdateArgs {
  std::int64_t step = 1;  // of this update, from 1
  double lr = 0;
  double grad_scale = 1;            // clip coefficient / loss scale
  std::uint64_t rounding_seed = 0;  // of the stochastic rounding of bf16 moments
};

// Without buffers and size. `decay`: TensorSpec::decay of the elements.
[[nodiscard]] UpdateSpan update_span(const OptimizerOptions& options, const UpdateArgs& args,
                                     bool decay);

// Adds an update for each weight-decay segment: of state.master, or of state.remainders with
// state.shard, from the first elements of state.grad_owned. An update of state.master also writes
// the same elements of state.shard, if any. Gradients are scaled only by args.grad_scale.
// device_update() (device_access.hpp) runs the updates.
void add_updates(GroupState& state, const OptimizerOptions& options, const UpdateArgs& args,
                 std::vector<UpdateSpan>& updates);

// Sum of squares of each run of `shard_elems` of `gradients` (fp32, contiguous, on the host), in
// double. DeviceNorm (device_norm.hpp) is the GPU's.
[[nodiscard]] std::vector<double> shard_sum_squares(const at::Tensor& gradients,
                                                    std::int64_t shard_elems);

[[nodiscard]] bool all_finite(const at::Tensor& tensor);

}  // namespace sluice
