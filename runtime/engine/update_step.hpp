// The update of one group's shard, on the device its states live on.
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

// Without buffers and size.
[[nodiscard]] UpdateSpan update_span(const OptimizerOptions& options, const UpdateArgs& args,
                                     bool decay);

// The optimizer's update of state.master from the first elements of state.grad_owned, as these are;
// writes those of state.shard. Weight decay by segment. One pass a segment, on the host and on a
// GPU alike, where it is enqueued on the current stream.
void update_shard(GroupState& state, const OptimizerOptions& options, const UpdateArgs& args);
// By a given kernel, which is handed addresses of the states' device.
using UpdateKernel = std::function<void(const UpdateSpan&)>;
void update_shard(GroupState& state, const OptimizerOptions& options, const UpdateArgs& args,
                  const UpdateKernel& run);

// Sum of squares of each `shard_elems` of `gradients` (fp32, contiguous), in double.
[[nodiscard]] std::vector<double> shard_sum_squares(const at::Tensor& gradients,
                                                    std::int64_t shard_elems);

// How that is summed where the host cannot: by libtorch, so many at a time, for a group's gradients
// in double are twice as large as they are. 32 MiB.
inline constexpr std::int64_t kWidenedElems = std::int64_t{4} << 20;
[[nodiscard]] double widened_sum_squares(const at::Tensor& values);

[[nodiscard]] bool all_finite(const at::Tensor& tensor);

}  // namespace sluice
