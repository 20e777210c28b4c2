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
  // Adds the sum over the rows of x. Kernels that write x fill the parts, which are returned:
  // undefined if the target is not wanted.
  [[nodiscard]] at::Tensor start(const GradTarget& target, const at::Tensor& x);
  // The parts of rows [row, row + rows). REQUIRES: row is a multiple of kSumRows (layer_norm.hpp).
  [[nodiscard]] static at::Tensor parts_of(const at::Tensor& parts, std::int64_t row,
                                           std::int64_t rows);
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
void norm_input_gradient(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& residual,
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
void rms_input_gradient(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& residual,
                        const RmsInput& in);
void rms_weight_gradient(const GradTarget& weight, const at::Tensor& dy, const RmsInput& in,
                         RowSums* sums = nullptr);

// y [N, F]. gelu: up [N, F], and y may be up. swiglu: up [N, 2 F], a token's gate before its up.
void gelu(const Measured& y, const at::Tensor& up);
void swiglu(const Measured& y, const at::Tensor& up);

// dup, which may be up, for dy [N, F]. With `again` the output y takes the place of dy, with the
// bits of the forward: the next weight's gradient reads it, and a kernel of its own would read up
// once more. REQUIRES: not `again` where dup is measured.
struct ActivationGradient {
  const Measured& dup;
  const at::Tensor& up;
  const Measured& dy;
  bool again = false;
  // The first pass of the sum over dup's rows (RowSums::start), which gelu_gradient makes on a GPU.
  at::Tensor parts{};
};
void gelu_gradient(const ActivationGradient& to);
void swiglu_gradient(const ActivationGradient& to);

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
void drop_out(const at::Tensor& out, const at::Tensor& x, const at::Tensor& residual,
              const DropoutPlace& place);

}  // namespace sluice
