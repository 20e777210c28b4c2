// libtorch's CUDA operators on a null GPU that computes (tests/gpu/null/queue.hpp).
//
// libtorch's own host code runs: it checks the arguments, allocates the results and scratch, and
// launches kernels that compute nothing. Behind it the stream gets one task that computes the
// results on the CPU. The task reads and writes device memory through CPU tensors on the same
// addresses; it owns none of it, so memory is reused in the stream's order as on a card.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>
#include <vector>

namespace sluice::emulated {

// What a task computes: `results` are the operator's, `arguments` those of its schema. Tensors are
// CPU tensors on the memory of the device.
using Work =
    std::function<void(const torch::jit::Stack& arguments, const std::vector<at::Tensor>& results)>;

// The operators of attention and their work (ops_attention_bridge.cpp).
struct Operator {
  const char *name, *overload;
  Work work;  // none: the operator of the CPU
};
[[nodiscard]] std::vector<Operator> attention_operators();

}  // namespace sluice::emulated
