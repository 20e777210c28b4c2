// The update of one group's shard, on the device its states live on.
#pragma once

#include "kernels/cpu/adamw.hpp"
#include "runtime/engine/group_store.hpp"

namespace sluice {

struct UpdateArgs {
  std::int64_t step = 1;  // of this update, from 1
  double lr = 0;
  double grad_scale = 1;  // clip coefficient
};

// The kernel's arguments but for buffers and size.
[[nodiscard]] AdamWArgs adamw_args(const OptimizerOptions& options, const UpdateArgs& args,
                                   bool decay);

// AdamW over state.master from the first elements of state.grad_owned; writes those of state.shard.
// Weight decay by segment.
void update_shard(GroupState& state, const OptimizerOptions& options, const UpdateArgs& args);

// Sum of squares of each `shard_elems` of `gradients` (fp32, contiguous), in double.
[[nodiscard]] std::vector<double> shard_sum_squares(const at::Tensor& gradients,
                                                    std::int64_t shard_elems);

[[nodiscard]] bool all_finite(const at::Tensor& tensor);

}  // namespace sluice
