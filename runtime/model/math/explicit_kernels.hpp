// Own kernels on tensors of the host or of a GPU (device_kernels.hpp). Meta tensors only pass. Host
// kernels allocate nothing, and a GPU's scratch is allocated on the meta device too, so a dry run
// of an explicit unit runs the same code. Tensors are contiguous and of one dtype unless stated;
// [N, H] is N tokens of H elements. A kernel that writes a Measured writes its row_maxima too, if
// defined.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/model/math/measured.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

// Sums over rows whose first pass has run on a GPU. finish() enqueues the second pass of all of
// them, in one launch; until then the gradients are not there. Keeps the memory of the first pass.
// On the host a sum is never left.
class RowSums {
 public:
  struct Sum {
    GradTarget target;
    at::Tensor parts;  // [blocks of rows, columns] fp32
  };
  void add(const GradTarget& target, const at::Tensor& parts) { sums_.push_back({target, parts}); }
  void finish();

 private:
  std::vector<Sum> sums_;
};

// x [N, H] with the parameters of its norm; statistics [2, N] fp32 (mean, 1 / standard deviation),
// undefined if no backward follows.
struct NormInput {
  at::Tensor x;
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor statistics;
  double eps = 1e-5;
};

// Writes in.statistics if defined.
void norm_forward(const Measured& y, const NormInput& in);
// Reads in.statistics. dx = residual + input gradient; dx may be dy or residual.
void norm_input_gradient(at::Tensor dx, const at::Tensor& dy, const at::Tensor& residual,
                         const NormInput& in);
// With `sums` the gradients are there after sums->finish().
void norm_weight_gradient(const GradTarget& weight, const GradTarget& bias, const at::Tensor& dy,
                          const NormInput& in, RowSums* sums = nullptr);

// The same for RMSNorm: rstd [N] fp32, undefined if no backward follows.
struct RmsInput {
  at::Tensor x;
  at::Tensor weight;
  at::Tensor rstd;
  double eps = 1e-5;
};
void rms_forward(const Measured& y, const RmsInput& in);
void rms_input_gradient(at::Tensor dx, const at::Tensor& dy, const at::Tensor& residual,
                        const RmsInput& in);
void rms_weight_gradient(const GradTarget& weight, const at::Tensor& dy, const RmsInput& in,
                         RowSums* sums = nullptr);

// gate_up, dgate_up [N, 2 F], a token's gate before its up; y, dy [N, F]. dgate_up may be gate_up.
void swiglu(const Measured& y, const at::Tensor& gate_up);
void swiglu_gradient(const Measured& dgate_up, const at::Tensor& gate_up, const at::Tensor& dy);

// y may be x; dx may be x or dy.
void gelu(const Measured& y, const at::Tensor& x);
void gelu_gradient(const Measured& dx, const at::Tensor& x, const at::Tensor& dy);

// The gradient of a bias: sums of dy [N, H] over its rows.
void bias_gradient(const GradTarget& target, const at::Tensor& dy, RowSums* sums = nullptr);

// The dropout of dropout.hpp with a mask that is computed again, not kept. Operates on elements of
// [B, ...] with `per_sample` elements a sample, starting at element `first` of the whole. If a
// sample's elements are a part of a larger sample, they begin at its element `offset`. out =
// residual + dropped x; residual undefined: none. out may be x or residual.
struct DropoutPlace {
  double p = 0;
  UnitCall call;
  std::uint64_t site = 0;
  std::int64_t per_sample = 0;
  std::int64_t first = 0;
  std::int64_t offset = 0;

  [[nodiscard]] bool active() const { return call.training && p > 0; }
};
void drop_out(at::Tensor out, const at::Tensor& x, const at::Tensor& residual,
              const DropoutPlace& place);

}  // namespace sluice
