#include "runtime/model/classifier_head.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "kernels/cpu/cast.hpp"
#include "kernels/cpu/softmax_cross_entropy.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/fp32_matmul.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/model/wide_product.hpp"

namespace sluice {
namespace {

// Rows of logits held at a time. Fewer lose GEMM rate (64: a quarter; 16-bit products, of which
// each is done in half the time, need more), and the classifier's gradient is read and written once
// a chunk; more no longer fit the last-level cache at 50k words.
constexpr std::int64_t kFp32Rows = 256;
constexpr std::int64_t kNativeRows = 384;

class ClassifierHead final : public LossHead {
 public:
  ClassifierHead(const ModelOptions& options, std::unique_ptr<FinalNorm> norm)
      : options_(options), norm_(std::move(norm)) {}

  [[nodiscard]] std::int64_t scratch_bytes(std::int64_t rows, DType dtype) const override {
    return std::min(rows, chunk_rows(dtype)) * options_.vocab * 4;
  }

  double loss(std::span<const at::Tensor> params, const at::Tensor& input,
              const at::Tensor& targets, double grad_scale, const at::Tensor& scratch,
              GradSink* sink, at::Tensor* grad_input) override {
    const c10::AutoGradMode no_graph(false);
    const at::Tensor x_NH = input.reshape({-1, options_.hidden});
    const at::Tensor& weight_VH = params[classifier_index()];
    const FinalNorm::Normed normed = norm_->forward(params, x_NH);
    const at::Tensor& h_NH = normed.h_NH;
    const at::Tensor targets_N = targets.flatten();
    at::Tensor dh_NH;
    GradTarget classifier;
    if (sink != nullptr) {
      dh_NH = at::empty_like(h_NH);
      classifier = sink->target(static_cast<int>(classifier_index()));
    }
    double sum = 0;
    const std::int64_t step = chunk_rows(dtype_of(x_NH));
    for (std::int64_t row = 0; row < x_NH.size(0); row += step) {
      const std::int64_t rows = std::min(step, x_NH.size(0) - row);
      const at::Tensor h_CH = h_NH.narrow(0, row, rows);
      const at::Tensor logits_CV = logits_in(scratch, h_CH, weight_VH);
      const CrossEntropy entropy{targets_N.narrow(0, row, rows), grad_scale, sink != nullptr};
      sum += entropy_of(logits_CV, entropy, dtype_of(x_NH));
      if (sink == nullptr) continue;
      const at::Tensor dlogits_CV = gradient_in(logits_CV, dtype_of(x_NH));
      input_gradient(dh_NH.narrow(0, row, rows), dlogits_CV, weight_VH);
      product_in_fp32(classifier.grad, dlogits_CV.t(), h_CH, classifier.accumulate);
      classifier.accumulate = true;
    }
    if (sink != nullptr) {
      *grad_input = norm_->backward(params, {x_NH, normed, dh_NH}, *sink).view(input.sizes());
    }
    return sum;
  }

  at::Tensor logits(std::span<const at::Tensor> params, const at::Tensor& input,
                    std::int64_t position) override {
    const c10::AutoGradMode no_graph(false);
    const at::Tensor h_BH = norm_->forward(params, input.select(1, position)).h_NH;
    const at::Tensor& weight_VH = params[classifier_index()];
    const at::Tensor logits_BV =
        empty_tensor({h_BH.size(0), options_.vocab}, c10::ScalarType::Float, h_BH.device());
    product_in_fp32(logits_BV, h_BH, weight_VH.t(), false);
    return logits_BV;
  }

 private:
  struct CrossEntropy {
    at::Tensor targets;
    double grad_scale;
    bool gradient;
  };

  [[nodiscard]] bool converts() const { return options_.matmul == MatmulType::kFp32; }

  [[nodiscard]] std::int64_t chunk_rows(DType dtype) const {
    return dtype == DType::kFloat32 || converts() ? kFp32Rows : kNativeRows;
  }

  // What products take d(loss)/d(logits) in: 16 bits where they are native ones of 16 bits.
  [[nodiscard]] DType gradient_dtype(DType model) const {
    return converts() ? DType::kFloat32 : model;
  }

  // c (fp32) = a b, or += a b.
  void product_in_fp32(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b,
                       bool accumulate) const {
    if (converts() || b.scalar_type() == c10::ScalarType::Float) {
      fp32_matmul({.c = c, .a = a, .b = b, .accumulate = accumulate});
    } else {
      wide_product(c, a, b, accumulate);
    }
  }

  at::Tensor logits_in(const at::Tensor& scratch, const at::Tensor& h,
                       const at::Tensor& weight) const {
    const at::Tensor logits = scratch.narrow(0, 0, h.size(0) * options_.vocab * 4)
                                  .view(c10::ScalarType::Float)
                                  .view({h.size(0), options_.vocab});
    product_in_fp32(logits, h, weight.t(), false);
    return logits;
  }

  // dh (the model's dtype) = dlogits weight.
  void input_gradient(at::Tensor dh, const at::Tensor& dlogits, const at::Tensor& weight) const {
    if (converts() || dh.scalar_type() == c10::ScalarType::Float) {
      fp32_matmul({.c = dh, .a = dlogits, .b = weight});
    } else if (dh.is_cuda() || wide_product_rounds(dh.scalar_type())) {
      at::mm_out(dh, dlogits, weight);
    } else {  // over a sum as long as the vocabulary the BLAS is the faster one
      const at::Tensor wide = empty_tensor(dh.sizes(), c10::ScalarType::Float, dh.device());
      wide_product(wide, dlogits, weight, false);
      if (dh.is_meta()) return;
      convert(host_bytes(dh), dtype_of(dh), host_bytes(wide), DType::kFloat32, dh.numel());
    }
  }

  // Sum of the losses. Where the gradient is asked for, it takes the place of the logits: row by
  // row at its beginning on the host, in fp32 on a GPU.
  double entropy_of(const at::Tensor& logits, const CrossEntropy& entropy, DType dtype) const {
    if (logits.is_meta()) return 0;
    if (!logits.is_cpu()) return device_cross_entropy(logits, entropy);
    const CrossEntropyArgs args{.logits = host_data<float>(logits),
                                .rows = logits.size(0),
                                .row_stride = options_.vocab,
                                .vocab = options_.vocab,
                                .width = options_.vocab,
                                .targets = host_data<std::int64_t>(entropy.targets),
                                .scale = static_cast<float>(entropy.grad_scale),
                                .gradient_dtype = gradient_dtype(dtype)};
    return entropy.gradient ? softmax_cross_entropy(args) : softmax_cross_entropy_loss(args);
  }

  at::Tensor gradient_in(const at::Tensor& logits, DType dtype) const {
    const c10::ScalarType wanted = scalar_type(gradient_dtype(dtype));
    if (wanted == c10::ScalarType::Float) return logits;
    return logits.is_cuda() ? logits.to(wanted) : logits.view(wanted).narrow(1, 0, options_.vocab);
  }

  static double device_cross_entropy(const at::Tensor& logits, const CrossEntropy& entropy) {
    const at::Tensor ignored = entropy.targets.eq(kIgnoreTarget).unsqueeze(1);
    const at::Tensor at_target = entropy.targets.clamp_min(0).unsqueeze(1);
    const at::Tensor log_p = logits.log_softmax(1);
    const at::Tensor of_targets = log_p.gather(1, at_target).masked_fill(ignored, 0);
    const double sum = -of_targets.sum(c10::ScalarType::Double).item<double>();
    if (entropy.gradient) {
      logits.copy_(log_p.exp());
      logits.scatter_add_(1, at_target, at::empty_like(at_target, logits.options()).fill_(-1.0));
      logits.mul_(entropy.grad_scale).masked_fill_(ignored, 0);
    }
    return sum;
  }

  [[nodiscard]] std::size_t classifier_index() const { return norm_->param_count(); }

  const ModelOptions options_;
  const std::unique_ptr<FinalNorm> norm_;
};

}  // namespace

std::unique_ptr<LossHead> make_classifier_head(const ModelOptions& options,
                                               std::unique_ptr<FinalNorm> norm) {
  return std::make_unique<ClassifierHead>(options, std::move(norm));
}

}  // namespace sluice
