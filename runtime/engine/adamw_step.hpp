// The update of one group's shard, on the device its states live on.
#pragma once

#include "runtime/engine/group_store.hpp"

namespace sluice {

struct UpdateArgs {
  std::int64_t step = 1;  // of this update, from 1
  double lr = 0;
  double grad_scale = 1;  // clip coefficient
};

// AdamW over state.master from state.grad_owned; writes state.shard. Weight decay by segment.
void update_shard(GroupState& state, const OptimizerOptions& options, const UpdateArgs& args);

// Sum of squares of each `shard_elems` of `gradients` (fp32, contiguous), in double.
[[nodiscard]] std::vector<double> shard_sum_squares(const at::Tensor& gradients,
                                                    std::int64_t shard_elems);

[[nodiscard]] bool all_finite(const at::Tensor& tensor);

}  // namespace sluice
