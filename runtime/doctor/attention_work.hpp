// A model's attention as work that the doctor times on a GPU. The function is in
// sluice::unit_timing; the header knows no libtorch.
#pragma once

#include <cstdint>
#include <functional>

namespace sluice {

// Causal attention in 16 bits, as a model in training calls it.
struct AttentionShape {
  bool cudnn = false;  // the operator: cuDNN's, or flash attention
  std::int64_t samples = 1, heads = 1, tokens = 1, head_dim = 1;
};

// bf16 tensors of normal values on the calling thread's GPU. The result enqueues one forward and
// backward of a training run on the calling thread's stream. Both throw c10::Error.
[[nodiscard]] std::function<void()> make_attention_work(const AttentionShape& shape);

}  // namespace sluice
