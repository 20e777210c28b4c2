#include "runtime/engine/update_step.hpp"

#include <algorithm>

#include "kernels/cpu/reduce.hpp"
#include "runtime/model/tensor_view.hpp"
#include "zero/optimizer_rule.hpp"

namespace sluice {
namespace {

// Memory of whichever device the tensor is on: only its kernel reads it.
template <typename T>
T* data_of(const at::Tensor& tensor) {
  check(tensor.is_contiguous(), "an update needs contiguous states");
  return tensor.data_ptr<T>();
}

char* bytes_of(const at::Tensor& tensor) {
  check(tensor.is_contiguous(), "an update needs contiguous states");
  return static_cast<char*>(tensor.data_ptr());
}

}  // namespace

UpdateSpan update_span(const OptimizerOptions& options, const UpdateArgs& args, bool decay) {
  UpdateSpan span;
  span.lr = args.lr;
  span.beta1 = options.betas[0];
  span.beta2 = options.betas[1];
  span.eps = options.eps;
  span.momentum = options.momentum;
  span.weight_decay = decay || options.decay == DecayScope::kAll ? options.weight_decay : 0.0;
  span.decoupled = options.decoupled;
  span.bias_correction = options.bias_correction;
  span.step = args.step;
  span.grad_scale = args.grad_scale;
  span.rounding_seed = args.rounding_seed;
  return span;
}

void add_updates(GroupState& state, const OptimizerOptions& options, const UpdateArgs& args,
                 std::vector<UpdateSpan>& updates) {
  const bool splits = state.remainders.defined();
  const bool writes = state.shard.defined() && !state.master_is_shard;
  const std::int64_t updated = (splits ? state.remainders : state.master).numel();
  const DType grad_dtype = dtype_of(state.grad_owned);
  for (const ShardSegment& segment : state.segments) {
    const std::int64_t begin = segment.range.begin;
    const std::int64_t end = std::min(segment.range.end, updated);
    if (begin >= end) break;
    UpdateSpan span = update_span(options, args, segment.decay);
    for (std::size_t k = 0; k < rule_of(options.type).moments; ++k) {
      const at::Tensor& moments = state.moments[k];
      span.moments_dtype = dtype_of(moments);
      span.moments[k] = bytes_of(moments) + begin * size_of(span.moments_dtype);
    }
    span.rounding_element = state.first_element + begin;
    span.grad = bytes_of(state.grad_owned) + begin * size_of(grad_dtype);
    span.grad_dtype = grad_dtype;
    span.weights_dtype = dtype_of(state.window);
    if (writes) {
      span.weights_out = bytes_of(state.shard) + begin * size_of(span.weights_dtype);
    }
    if (splits) {
      span.remainders =
          reinterpret_cast<std::uint16_t*>(data_of<std::int16_t>(state.remainders)) + begin;
      span.weights = span.weights_out;
    } else {
      span.master = data_of<float>(state.master) + begin;
    }
    span.n = end - begin;
    updates.push_back(span);
  }
}

std::vector<double> shard_sum_squares(const at::Tensor& gradients, std::int64_t shard_elems) {
  std::vector<double> sums;
  const DType dtype = dtype_of(gradients);
  for (std::int64_t begin = 0; begin < gradients.numel(); begin += shard_elems) {
    const auto* const bytes = static_cast<const std::byte*>(host_bytes(gradients));
    sums.push_back(sum_squares(bytes + begin * size_of(dtype), dtype, shard_elems));
  }
  return sums;
}

bool all_finite(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) return tensor.isfinite().all().item<bool>();
  const at::Tensor dense = tensor.contiguous();
  return first_non_finite(host_bytes(dense), dtype_of(dense), dense.numel()) < 0;
}

}  // namespace sluice
