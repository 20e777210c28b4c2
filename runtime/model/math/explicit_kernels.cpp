#include "runtime/model/math/explicit_kernels.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "kernels/cpu/dropout.hpp"
#include "kernels/cpu/gelu.hpp"
#include "kernels/cpu/layer_norm.hpp"
#include "kernels/cpu/philox.hpp"
#include "kernels/cpu/rms_norm.hpp"
#include "runtime/model/device/device_kernels.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

LayerNormArgs norm_args(const NormInput& in) {
  float* mean = in.statistics.defined() ? host_data<float>(in.statistics) : nullptr;
  return {.x = host_bytes(in.x),
          .weight = host_bytes(in.weight),
          .bias = host_bytes(in.bias),
          .mean = mean,
          .rstd = mean == nullptr ? nullptr : mean + in.x.size(0),
          .dtype = dtype_of(in.x),
          .rows = in.x.size(0),
          .hidden = in.x.size(1),
          .eps = in.eps};
}

RmsNormArgs rms_args(const RmsInput& in) {
  return {.x = host_bytes(in.x),
          .weight = host_bytes(in.weight),
          .rstd = in.rstd.defined() ? host_data<float>(in.rstd) : nullptr,
          .dtype = dtype_of(in.x),
          .rows = in.x.size(0),
          .hidden = in.x.size(1),
          .eps = in.eps};
}

device::Norm on_device(const NormInput& in) {
  return {in.x, in.weight, in.bias, in.statistics, in.eps, true};
}

device::Norm on_device(const RmsInput& in) {
  static const at::Tensor no_bias;
  return {in.x, in.weight, no_bias, in.rstd, in.eps, false};
}

GateUp gate_up_of(const at::Tensor& gate_up) {
  return {host_bytes(gate_up), dtype_of(gate_up), gate_up.size(0), gate_up.size(1) / 2};
}

}  // namespace

at::Tensor RowSums::start(const GradTarget& target, const at::Tensor& x) {
  if (!target.wanted()) return {};
  sums_.push_back({target, device::sum_parts(x)});
  return sums_.back().parts;
}

at::Tensor RowSums::parts_of(const at::Tensor& parts, std::int64_t row, std::int64_t rows) {
  if (!parts.defined()) return {};
  check(row % kSumRows == 0, "a part of a sum begins at a whole block of rows");
  return parts.narrow(0, row / kSumRows, (rows + kSumRows - 1) / kSumRows);
}

void RowSums::finish() {
  device::finish_sums(sums_);
  sums_.clear();
}

void norm_forward(const Measured& y, const NormInput& in) {
  if (takes_gpu_path(y.tensor)) return device::norm_forward(y, on_device(in));
  if (y.tensor.is_meta()) return;
  layer_norm_forward(norm_args(in), host_bytes(y.tensor));
}

void norm_input_gradient(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& residual,
                         const NormInput& in) {
  if (takes_gpu_path(dx)) return device::norm_input_gradient(dx, dy, residual, on_device(in));
  if (dx.is_meta()) return;
  layer_norm_input_gradient(norm_args(in), host_bytes(dx), host_bytes(dy), host_bytes(residual));
}

void norm_weight_gradient(const GradTarget& weight, const GradTarget& bias, const at::Tensor& dy,
                          const NormInput& in, RowSums* sums) {
  if (takes_gpu_path(dy))
    return device::norm_weight_gradient(weight, bias, dy, on_device(in), sums);
  if (!weight.wanted() && !bias.wanted()) return;
  // The kernel writes both: one that is not wanted goes to memory of its own.
  const auto place_of = [&](const GradTarget& target) {
    return target.wanted() ? target.grad
                           : empty_tensor(in.weight.sizes(), c10::ScalarType::Float, dy.device());
  };
  const at::Tensor to_weight = place_of(weight);
  const at::Tensor to_bias = place_of(bias);
  if (dy.is_meta()) return;
  layer_norm_weight_gradient(norm_args(in), host_data<float>(to_weight), host_data<float>(to_bias),
                             host_bytes(dy), weight.wanted() && weight.accumulate,
                             bias.wanted() && bias.accumulate);
}

void rms_forward(const Measured& y, const RmsInput& in) {
  if (takes_gpu_path(y.tensor)) return device::norm_forward(y, on_device(in));
  if (y.tensor.is_meta()) return;
  rms_norm_forward(rms_args(in), host_bytes(y.tensor));
}

void rms_input_gradient(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& residual,
                        const RmsInput& in) {
  if (takes_gpu_path(dx)) return device::norm_input_gradient(dx, dy, residual, on_device(in));
  if (dx.is_meta()) return;
  rms_norm_input_gradient(rms_args(in), host_bytes(dx), host_bytes(dy), host_bytes(residual));
}

void rms_weight_gradient(const GradTarget& weight, const at::Tensor& dy, const RmsInput& in,
                         RowSums* sums) {
  if (takes_gpu_path(dy)) return device::norm_weight_gradient(weight, {}, dy, on_device(in), sums);
  if (dy.is_meta() || !weight.wanted()) return;
  rms_norm_weight_gradient(rms_args(in), host_data<float>(weight.grad), host_bytes(dy),
                           weight.accumulate);
}

void gelu(const Measured& y, const at::Tensor& up) {
  if (takes_gpu_path(up)) return device::gelu(y, up);
  if (up.is_meta()) return;
  gelu_forward(host_bytes(y.tensor), host_bytes(up), dtype_of(up), up.numel());
}

void gelu_gradient(const ActivationGradient& to) {
  if (takes_gpu_path(to.up)) return device::gelu_gradient(to);
  if (to.up.is_meta()) return;
  void* const dy = host_bytes(to.dy.tensor);
  gelu_backward(host_bytes(to.dup.tensor), host_bytes(to.up), dy, dtype_of(to.up), to.up.numel(),
                to.again ? dy : nullptr);
}

void swiglu(const Measured& y, const at::Tensor& up) {
  if (takes_gpu_path(y.tensor)) return device::swiglu(y, up);
  if (y.tensor.is_meta()) return;
  swiglu_forward(host_bytes(y.tensor), gate_up_of(up));
}

void swiglu_gradient(const ActivationGradient& to) {
  if (takes_gpu_path(to.up)) return device::swiglu_gradient(to);
  if (to.up.is_meta()) return;
  if (host_bytes(to.dup.tensor) != host_bytes(to.up)) to.dup.tensor.copy_(to.up);
  void* const dy = host_bytes(to.dy.tensor);
  swiglu_backward(gate_up_of(to.dup.tensor), dy, to.again ? dy : nullptr);
}

void bias_gradient(const GradTarget& target, const at::Tensor& dy, RowSums* sums) {
  if (takes_gpu_path(dy)) return device::bias_gradient(target, dy, sums);
  if (dy.is_meta() || !target.wanted()) return;
  column_sum(host_data<float>(target.grad), host_bytes(dy), dtype_of(dy), dy.size(0), dy.size(1),
             target.accumulate);
}

void drop_out(const at::Tensor& out, const at::Tensor& x, const at::Tensor& residual,
              const DropoutPlace& place) {
  if (takes_gpu_path(out)) {
    return device::end_branch({.out = out, .x = x, .residual = residual, .dropout = place});
  }
  if (out.is_meta()) return;
  const DType dtype = dtype_of(x);
  auto* to = static_cast<std::byte*>(host_bytes(out));
  const auto* from = static_cast<const std::byte*>(host_bytes(x));
  const auto* base =
      residual.defined() ? static_cast<const std::byte*>(host_bytes(residual)) : nullptr;
  for (std::int64_t i = 0; i < x.numel();) {
    const std::int64_t sample = (place.first + i) / place.per_sample;
    const std::int64_t within = (place.first + i) % place.per_sample;
    const std::int64_t n = std::min(x.numel() - i, place.per_sample - within);
    const std::array<std::uint64_t, 3> key{
        static_cast<std::uint64_t>(place.call.step),
        static_cast<std::uint64_t>(place.call.first_sample + sample), place.site};
    const std::int64_t at = i * size_of(dtype);
    dropout_add({.out = to + at,
                 .x = from + at,
                 .residual = base == nullptr ? nullptr : base + at,
                 .dtype = dtype,
                 .n = n,
                 .p = place.p,
                 .seed = place.call.seed,
                 .stream = hash_stream(key),
                 .first_element = place.offset + within});
    i += n;
  }
}

}  // namespace sluice
