#include "runtime/doctor/attention_work.hpp"

#include <ATen/ops/randn.h>

#include "runtime/model/math/explicit_attention.hpp"

namespace sluice {

std::function<void()> make_attention_work(const AttentionShape& shape) {
  const auto options = at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA);
  // A projection's output, q, k and v side by side in a row of tokens.
  const std::int64_t sizes[]{shape.samples, shape.tokens, 3 * shape.heads, shape.head_dim};
  const at::Tensor fused = at::randn(sizes, options);
  const auto part = [&](std::int64_t index) {
    return fused.narrow(2, index * shape.heads, shape.heads).transpose(1, 2);
  };
  AttentionInput in;
  in.q = part(0);
  in.k = part(1);
  in.v = part(2);
  in.backend = shape.cudnn ? AttentionBackend::kCudnn : AttentionBackend::kFlash;
  const at::Tensor grad =
      at::randn({shape.samples, shape.tokens, shape.heads, shape.head_dim}, options)
          .transpose(1, 2);
  // Without a place for them, the gradients are not put side by side: plans price that by its
  // bytes.
  return [in, grad] { attention_backward(in, attention_forward(in), grad, {}); };
}

}  // namespace sluice
