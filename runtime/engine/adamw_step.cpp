#include "runtime/engine/adamw_step.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/adamw.hpp"
#include "kernels/cpu/reduce.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

void update_on_host(GroupState& state, const OptimizerOptions& options, const UpdateArgs& args) {
  const DType dtype = dtype_of(state.shard);
  auto* weights = static_cast<char*>(host_bytes(state.shard));
  for (const ShardSegment& segment : state.segments) {
    const std::int64_t begin = segment.range.begin;
    const std::int64_t end = std::min(segment.range.end, state.master.numel());
    if (begin >= end) break;
    AdamWArgs kernel = adamw_args(options, args, segment.decay);
    kernel.master = host_data<float>(state.master) + begin;
    kernel.m = host_data<float>(state.moment1) + begin;
    kernel.v = host_data<float>(state.moment2) + begin;
    kernel.grad = host_data<float>(state.grad_owned) + begin;
    if (!state.master_is_shard) {
      kernel.weights_out = weights + begin * size_of(dtype);
      kernel.weights_dtype = dtype;
    }
    kernel.n = end - begin;
    adamw(kernel);
  }
}

// The same rule in libtorch's operators, for memory the host cannot reach.
void update_on_device(GroupState& state, const OptimizerOptions& options, const UpdateArgs& args) {
  const auto step = static_cast<double>(args.step);
  const double bias1 = 1.0 - std::pow(options.betas[0], step);
  const double bias2 = 1.0 - std::pow(options.betas[1], step);
  for (const ShardSegment& segment : state.segments) {
    const std::int64_t begin = segment.range.begin;
    const std::int64_t n = std::min(segment.range.end, state.master.numel()) - begin;
    if (n <= 0) break;
    const at::Tensor grad = state.grad_owned.narrow(0, begin, n).mul(args.grad_scale);
    at::Tensor p = state.master.narrow(0, begin, n);
    at::Tensor m = state.moment1.narrow(0, begin, n);
    at::Tensor v = state.moment2.narrow(0, begin, n);
    m.mul_(options.betas[0]).add_(grad, 1.0 - options.betas[0]);
    v.mul_(options.betas[1]).addcmul_(grad, grad, 1.0 - options.betas[1]);
    if (segment.decay) p.mul_(1.0 - args.lr * options.weight_decay);
    p.addcdiv_(m, v.sqrt().div_(std::sqrt(bias2)).add_(options.eps), -args.lr / bias1);
  }
  if (!state.master_is_shard) state.shard.narrow(0, 0, state.master.numel()).copy_(state.master);
}

}  // namespace

AdamWArgs adamw_args(const OptimizerOptions& options, const UpdateArgs& args, bool decay) {
  AdamWArgs kernel;
  kernel.lr = args.lr;
  kernel.beta1 = options.betas[0];
  kernel.beta2 = options.betas[1];
  kernel.eps = options.eps;
  kernel.weight_decay = decay ? options.weight_decay : 0.0;
  kernel.step = args.step;
  kernel.grad_scale = args.grad_scale;
  return kernel;
}

void update_shard(GroupState& state, const OptimizerOptions& options, const UpdateArgs& args) {
  if (state.master.is_cpu()) {
    update_on_host(state, options, args);
  } else {
    update_on_device(state, options, args);
  }
}

std::vector<double> shard_sum_squares(const at::Tensor& gradients, std::int64_t shard_elems) {
  std::vector<double> sums;
  for (std::int64_t begin = 0; begin < gradients.numel(); begin += shard_elems) {
    if (gradients.is_cpu()) {
      sums.push_back(sum_squares(host_data<float>(gradients) + begin, shard_elems));
    } else {
      const at::Tensor wide = gradients.narrow(0, begin, shard_elems).to(c10::ScalarType::Double);
      sums.push_back(wide.mul(wide).sum().item<double>());
    }
  }
  return sums;
}

bool all_finite(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) return tensor.isfinite().all().item<bool>();
  const at::Tensor dense = tensor.contiguous();
  return first_non_finite(host_bytes(dense), dtype_of(dense), dense.numel()) < 0;
}

}  // namespace sluice
