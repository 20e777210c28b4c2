// Differences between gpt2 and llama blocks: positions of parameters, LayerNorm or RMSNorm, GELU or
// SwiGLU. Rows are tokens; host and meta tensors (explicit_kernels.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/model/device/device_kernels.hpp"
#include "runtime/model/math/explicit_kernels.hpp"
#include "runtime/model/math/weight_products.hpp"
#include "runtime/model/model_options.hpp"

namespace sluice {

// Positions of parameters in a block's list; -1: absent. Matrices of one input (q, k, v or gate,
// up) form a stack of `count` matrices, and so do their biases.
struct BlockParams {
  struct Stack {
    int weight = 0;
    int bias = -1;
    int count = 1;
  };
  struct Norm {
    int weight = 0;
    int bias = -1;  // of a LayerNorm; an RMSNorm has none
  };
  Norm norm1, norm2;
  Stack qkv, up;
  int out = 0, out_bias = -1;
  int down = 0, down_bias = -1;
};
// REQUIRES: with_defaults() was applied.
[[nodiscard]] BlockParams block_params(const ModelOptions& options);

// The norm of x [N, H] before a half of a block.
struct BlockNorm {
  at::Tensor x, weight, bias;  // bias undefined: RMSNorm
  double eps = 1e-5;
  at::Tensor statistics{};  // for the gradients; undefined where none follow

  void keep_statistics();
  void forward(const Measured& y) const;
  // As a GPU's kernels take it.
  [[nodiscard]] device::Norm on_device() const;
  // dx = residual + the gradient by x; dx may be dy or residual.
  void input_gradient(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& residual) const;
  void weight_gradient(WeightProducts& weights, const BlockParams::Norm& at,
                       const at::Tensor& dy) const;
};

// The gradient [C, H] of the MLP's output, the matrix that yields it, and where the gradient of the
// matrix goes: nowhere if that is frozen or comes later.
struct DownBackward {
  const at::Tensor& dy;
  const at::Tensor& weight;
  GradTarget& target;
};

// up [C, U] -> [C, F]: U is F for GELU, 2 F for SwiGLU.
class BlockActivation {
 public:
  explicit BlockActivation(bool gated) : gated_(gated) {}

  [[nodiscard]] bool gated() const { return gated_; }
  void forward(const Measured& y, const at::Tensor& up) const;  // ungated: y may be up
  // Through the matrix behind the activation, [H, F], and the activation. to.dy is scratch, and
  // to.again is not read.
  void backward(const ActivationGradient& to, const DownBackward& down) const;

 private:
  void gradient(const ActivationGradient& to) const;

  const bool gated_;
};

}  // namespace sluice
