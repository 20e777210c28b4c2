// The update of one group's shard, on the device of its states.
#pragma once

#include <functional>

#include "kernels/cpu/update/update_span.hpp"
#include "runtime/engine/group_store.hpp"
#include "zero/optimizer_options.hpp"

namespace sluice {

struct UpdateArgs {
  std::int64_t step = 1;  // of this update, from 1
  double lr = 0;
  double grad_scale = 1;  // clip coefficient
};

// Without buffers and size. `decay`: TensorSpec::decay of the elements.
[[nodiscard]] UpdateSpan update_span(const OptimizerOptions& options, const UpdateArgs& args,
                                     bool decay);

// Updates state.master from the first elements of state.grad_owned and writes the same elements of
// state.shard. Gradients are scaled only by args.grad_scale. Runs one pass per weight-decay
// segment. On a GPU the passes are enqueued on the current stream.
void update_shard(GroupState& state, const OptimizerOptions& options, const UpdateArgs& args);
// The same with a given kernel, called with addresses of the states' device.
using UpdateKernel = std::function<void(const UpdateSpan&)>;
void update_shard(GroupState& state, const OptimizerOptions& options, const UpdateArgs& args,
                  const UpdateKernel& run);

// Sum of squares of each run of `shard_elems` of `gradients` (fp32, contiguous, on the host), in
// double. gpu_sum_squares() is the GPU's.
[[nodiscard]] std::vector<double> shard_sum_squares(const at::Tensor& gradients,
                                                    std::int64_t shard_elems);

[[nodiscard]] bool all_finite(const at::Tensor& tensor);

}  // namespace sluice
