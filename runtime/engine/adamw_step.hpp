// The update of one group's shard, on the device its states live on.
#pragma once

#include <functional>

#include "kernels/cpu/adamw.hpp"
#include "runtime/engine/group_store.hpp"
#include "zero/optimizer_options.hpp"

namespace sluice {

struct UpdateArgs {
  std::int64_t step = 1;  // of this update, from 1
  double lr = 0;
  double grad_scale = 1;  // clip coefficient
};

// The kernel's arguments but for buffers and size.
[[nodiscard]] AdamWArgs adamw_args(const OptimizerOptions& options, const UpdateArgs& args,
                                   bool decay);

// AdamW over state.master from the first elements of state.grad_owned, as these are; writes those
// of state.shard. Weight decay by segment. One pass a segment, on the host and on a GPU alike,
// where it is enqueued on the current stream.
void update_shard(GroupState& state, const OptimizerOptions& options, const UpdateArgs& args);
// By a given kernel, which is handed addresses of the states' device.
using AdamWKernel = std::function<void(const AdamWArgs&)>;
void update_shard(GroupState& state, const OptimizerOptions& options, const UpdateArgs& args,
                  const AdamWKernel& run);

// Sum of squares of each `shard_elems` of `gradients` (fp32, contiguous), in double.
[[nodiscard]] std::vector<double> shard_sum_squares(const at::Tensor& gradients,
                                                    std::int64_t shard_elems);

// How that is summed where the host cannot: by libtorch, so many at a time, for a group's gradients
// in double are twice as large as they are. 32 MiB.
inline constexpr std::int64_t kWidenedElems = std::int64_t{4} << 20;
[[nodiscard]] double widened_sum_squares(const at::Tensor& values);

[[nodiscard]] bool all_finite(const at::Tensor& tensor);

}  // namespace sluice
