// Sliding-window attention on the host in blocks (see WindowMask), with a backward of its own:
// libtorch's backward of overlapping slices would fill a tensor of all keys for every block.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace sluice {

// q, k, v: [R, G, S, D] (any strides; G of k and v may have stride 0), band: WindowMask's, on their
// device; S > window.
struct WindowCall {
  const at::Tensor& q;
  const at::Tensor& k;
  const at::Tensor& v;
  const at::Tensor& band;
};

// Output [R, G, S, D] in the order of q's strides, and the rows' log-sum-exp [R, G, S] fp32.
[[nodiscard]] std::tuple<at::Tensor, at::Tensor> window_attention_forward(const WindowCall& call);
[[nodiscard]] std::tuple<at::Tensor, at::Tensor, at::Tensor> window_attention_backward(
    const WindowCall& call, const at::Tensor& out, const at::Tensor& lse, const at::Tensor& grad);

// Differentiable: both as one autograd function.
[[nodiscard]] at::Tensor window_attention(const WindowCall& call);

}  // namespace sluice
