#include "runtime/model/classifier_head.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "kernels/cpu/softmax_cross_entropy.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

// Rows of logits held at a time. Fewer lose GEMM rate (64: a quarter), and the classifier's
// gradient is read and written once a chunk; more no longer fit the last-level cache at 50k words.
constexpr std::int64_t kChunkRows = 256;

class ClassifierHead final : public LossHead {
 public:
  ClassifierHead(const ModelOptions& options, std::unique_ptr<FinalNorm> norm)
      : options_(options), norm_(std::move(norm)) {}

  [[nodiscard]] std::int64_t scratch_bytes(std::int64_t rows) const override {
    // fp32 logits, and behind them the 16-bit ones of a 16-bit model: sized for either.
    return std::min(rows, kChunkRows) * options_.vocab * (4 + 2);
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
    for (std::int64_t row = 0; row < x_NH.size(0); row += kChunkRows) {
      const std::int64_t rows = std::min(kChunkRows, x_NH.size(0) - row);
      const Chunk chunk = chunk_views(scratch, rows, x_NH);
      sum += cross_entropy(chunk, h_NH.narrow(0, row, rows), weight_VH,
                           targets_N.narrow(0, row, rows), grad_scale, sink != nullptr);
      if (sink == nullptr) continue;
      back_chunk(chunk, h_NH.narrow(0, row, rows), weight_VH, dh_NH.narrow(0, row, rows),
                 classifier);
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
    return at::mm(h_BH, params[classifier_index()].t()).to(c10::ScalarType::Float);
  }

 private:
  struct Chunk {
    at::Tensor wide;    // [rows, V] fp32: logits, then their gradient
    at::Tensor narrow;  // the same in the model's dtype; `wide` itself in fp32
  };

  Chunk chunk_views(const at::Tensor& scratch, std::int64_t rows, const at::Tensor& like) const {
    const std::int64_t elems = rows * options_.vocab;
    Chunk chunk;
    chunk.wide =
        scratch.narrow(0, 0, elems * 4).view(c10::ScalarType::Float).view({rows, options_.vocab});
    chunk.narrow = chunk.wide;
    if (like.scalar_type() != c10::ScalarType::Float) {
      chunk.narrow = scratch.narrow(0, elems * 4, elems * 2)
                         .view(like.scalar_type())
                         .view({rows, options_.vocab});
    }
    return chunk;
  }

  // Leaves d(loss)/d(logits) in chunk.narrow where `gradient`.
  double cross_entropy(const Chunk& chunk, const at::Tensor& h, const at::Tensor& weight,
                       const at::Tensor& targets, double grad_scale, bool gradient) const {
    at::Tensor narrow = chunk.narrow;
    at::mm_out(narrow, h, weight.t());
    if (!chunk.narrow.is_same(chunk.wide)) chunk.wide.copy_(chunk.narrow);
    double sum = 0;
    if (chunk.wide.is_cpu()) {
      const CrossEntropyArgs args{.logits = host_data<float>(chunk.wide),
                                  .rows = h.size(0),
                                  .row_stride = options_.vocab,
                                  .vocab = options_.vocab,
                                  .width = options_.vocab,
                                  .targets = host_data<std::int64_t>(targets),
                                  .scale = static_cast<float>(grad_scale)};
      sum = gradient ? softmax_cross_entropy(args) : softmax_cross_entropy_loss(args);
    } else if (!chunk.wide.is_meta()) {
      sum = device_cross_entropy(chunk.wide, targets, grad_scale, gradient);
    }
    if (gradient && !chunk.narrow.is_same(chunk.wide)) chunk.narrow.copy_(chunk.wide);
    return sum;
  }

  static double device_cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                                     double grad_scale, bool gradient) {
    const at::Tensor at_target = targets.unsqueeze(1);
    const at::Tensor log_p = logits.log_softmax(1);
    const double sum = -log_p.gather(1, at_target).sum(c10::ScalarType::Double).item<double>();
    if (gradient) {
      logits.copy_(log_p.exp());
      logits.scatter_add_(1, at_target, at::empty_like(at_target, logits.options()).fill_(-1.0));
      logits.mul_(grad_scale);
    }
    return sum;
  }

  static void back_chunk(const Chunk& chunk, const at::Tensor& h, const at::Tensor& weight,
                         at::Tensor dh, const GradTarget& classifier) {
    at::mm_out(dh, chunk.narrow, weight);
    at::Tensor grad = classifier.grad;
    if (chunk.narrow.is_same(chunk.wide)) {
      at::addmm_out(grad, grad, chunk.wide.t(), h, classifier.accumulate ? 1 : 0, 1);
    } else if (classifier.accumulate) {
      grad.add_(at::mm(chunk.narrow.t(), h));
    } else {
      grad.copy_(at::mm(chunk.narrow.t(), h));
    }
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
