#include "runtime/model/blocks/classifier_head.hpp"

#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "kernels/cpu/softmax_cross_entropy.hpp"
#include "runtime/model/device/device_kernels.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/math/classifier_products.hpp"
#include "runtime/model/math/dry_pieces.hpp"
#include "runtime/model/math/sliced_entropy.hpp"
#include "runtime/model/model_slices.hpp"
#include "runtime/model/tensor_view.hpp"

namespace sluice {
namespace {

// Names of tensors end in their shape: N = B S rows, M of them before the head (tensor_group.hpp),
// C rows of a chunk, V words: the rank's.
class ClassifierHead final : public LossHead {
 public:
  ClassifierHead(const ModelOptions& options, std::unique_ptr<FinalNorm> norm,
                 std::shared_ptr<TensorGroup> group)
      : options_(options),
        slices_(model_slices(options, group ? group->part() : ModelPart{})),
        products_(options.matmul, options.on_gpu, slices_.vocab.count),
        norm_(std::move(norm)),
        group_(std::move(group)) {}

  [[nodiscard]] std::int64_t scratch_bytes(std::int64_t rows, DType dtype) const override {
    return products_.scratch_bytes(rows, dtype);
  }

  LossSum loss(std::span<const at::Tensor> params, const at::Tensor& input,
               const at::Tensor& targets, LossFactor factor, const at::Tensor& given_scratch,
               GradSink* sink, at::Tensor* grad_input) override {
    const c10::AutoGradMode no_graph(false);
    const std::int64_t batch = input.size(0);
    const at::Tensor x_MH = input.reshape({-1, options_.hidden});
    const at::Tensor& weight_VH = params[classifier_index()];
    FinalNorm::Normed normed = norm_->forward(params, x_MH);
    const at::Tensor h_NH = whole_rows(std::move(normed.h_NH), batch);
    const at::Tensor targets_N = targets.flatten();
    at::Tensor dh_NH;
    GradTarget classifier;
    if (sink != nullptr) {
      dh_NH = at::empty_like(h_NH);
      classifier = sink->target(static_cast<int>(classifier_index()));
    }
    double sum = 0;
    TensorGroup::Started summing;
    const std::int64_t N = h_NH.size(0);
    const at::Tensor losses_N = losses_of(h_NH);
    const at::Tensor scratch = given_scratch.defined() ? given_scratch : scratch_of(h_NH);
    const std::int64_t step = products_.chunk_rows(dtype_of(h_NH));
    std::int64_t next = 0;
    for (std::int64_t row = 0; row < N; row = next) {
      const std::int64_t rows = std::min(step, N - row);
      next = next_piece(row, step, N, input.is_meta());
      const at::Tensor h_CH = h_NH.narrow(0, row, rows);
      const at::Tensor logits_CV = products_.logits_in(scratch, h_CH, weight_VH);
      const at::Tensor dlogits_CV =
          sink == nullptr ? at::Tensor() : products_.gradient_in(logits_CV, dtype_of(h_NH));
      sum += entropy_of(logits_CV,
                        {targets_N.narrow(0, row, rows), factor, dlogits_CV,
                         options_.on_gpu ? losses_N.narrow(0, row, rows) : losses_N},
                        dtype_of(h_NH));
      if (group_) group_->leave_out((next - row - step) / step);  // a dry run's chunks, all alike
      if (sink == nullptr) continue;
      products_.input_gradient(dh_NH.narrow(0, row, rows), dlogits_CV, weight_VH);
      // The ranks' gradients are summed while the last chunk's product with the rows runs.
      if (group_ && row + step >= N) summing = group_->sum(dh_NH, batch, Beside::kWeightProduct);
      if (!classifier.wanted()) continue;
      products_.in_fp32(classifier.grad, dlogits_CV.t(), h_CH, classifier.accumulate);
      classifier.accumulate = true;
    }
    if (sink != nullptr) {
      const at::Tensor dh_MH = group_ ? summing.finish() : dh_NH;
      *grad_input = norm_->backward(params, {x_MH, normed, dh_MH}, *sink).view(input.sizes());
    }
    return options_.on_gpu ? LossSum(losses_N) : LossSum(sum);
  }

  at::Tensor logits(std::span<const at::Tensor> params, const at::Tensor& input,
                    std::int64_t position) override {
    const c10::AutoGradMode no_graph(false);
    const at::Tensor h_BH = norm_->forward(params, rows_at(input, position)).h_NH;
    const at::Tensor& weight_VH = params[classifier_index()];
    const at::Tensor own_BV =
        empty_tensor({h_BH.size(0), group_ ? slices_.vocab_width : options_.vocab},
                     c10::ScalarType::Float, h_BH.device());
    products_.in_fp32(own_BV.narrow(1, 0, weight_VH.size(0)), h_BH, weight_VH.t(), false);
    return group_ ? all_words(own_BV) : own_BV;
  }

 private:
  struct CrossEntropy {
    at::Tensor targets;
    LossFactor factor;
    at::Tensor gradient;  // undefined: only the loss is wanted
    at::Tensor losses;    // of each row, on a GPU
  };

  [[nodiscard]] bool sequence() const { return group_ && group_->sequence(); }

  at::Tensor whole_rows(at::Tensor h_MH, std::int64_t batch) const {
    if (!sequence()) return h_MH;
    return group_->whole(h_MH.contiguous(), batch).finish();
  }

  // [B, H] of one position, which with sequence parallelism one of the ranks has.
  at::Tensor rows_at(const at::Tensor& input, std::int64_t position) const {
    if (!sequence()) return input.select(1, position).contiguous();
    const std::int64_t each = input.size(1);
    const at::Tensor own_BH = input.select(1, position % each).contiguous();
    return group_->each(own_BH).select(0, position / each);
  }

  // [B, V] of all ranks' words: they have as many as the widest, but the last.
  at::Tensor all_words(const at::Tensor& own_BV) const {
    const at::Tensor all_TBV = group_->each(own_BV);
    const at::Tensor logits_BV =
        empty_tensor({own_BV.size(0), options_.vocab}, c10::ScalarType::Float, own_BV.device());
    for (std::int64_t first = 0, rank = 0; first < options_.vocab; ++rank) {
      const std::int64_t words = std::min(slices_.vocab_width, options_.vocab - first);
      logits_BV.narrow(1, first, words).copy_(all_TBV.select(0, rank).narrow(1, 0, words));
      first += words;
    }
    return logits_BV;
  }

  // A GPU's losses, of each row; undefined on the host.
  [[nodiscard]] at::Tensor losses_of(const at::Tensor& h_NH) const {
    if (!options_.on_gpu) return {};
    return empty_tensor({h_NH.size(0)}, c10::ScalarType::Float, h_NH.device());
  }

  [[nodiscard]] at::Tensor scratch_of(const at::Tensor& h_NH) const {
    return empty_tensor({scratch_bytes(h_NH.size(0), dtype_of(h_NH))}, c10::ScalarType::Byte,
                        h_NH.device());
  }

  // Sum of the losses; 0 on a GPU, which writes the losses of rows. The gradient replaces the
  // logits, at the beginning of each row.
  double entropy_of(const at::Tensor& logits, const CrossEntropy& entropy, DType dtype) const {
    if (options_.on_gpu) {
      const device::Entropy gpu{logits,
                                entropy.targets,
                                entropy.losses,
                                entropy.gradient,
                                entropy.factor.value,
                                {slices_.vocab, options_.vocab},
                                entropy.factor.scalars};
      if (group_) {
        gpu_sliced_cross_entropy(*group_, gpu);
      } else {
        device::cross_entropy(gpu);
      }
      return 0;
    }
    if (group_) {
      return sliced_cross_entropy(*group_, {.logits = logits,
                                            .targets = entropy.targets,
                                            .words = slices_.vocab,
                                            .vocab = options_.vocab,
                                            .grad_scale = entropy.factor.value,
                                            .gradient = entropy.gradient.defined(),
                                            .gradient_dtype = products_.gradient_dtype(dtype)});
    }
    if (logits.is_meta()) return 0;
    const CrossEntropyArgs args{.logits = host_data<float>(logits),
                                .rows = logits.size(0),
                                .row_stride = options_.vocab,
                                .vocab = options_.vocab,
                                .width = options_.vocab,
                                .targets = host_data<std::int64_t>(entropy.targets),
                                .scale = static_cast<float>(entropy.factor.value),
                                .gradient_dtype = products_.gradient_dtype(dtype)};
    return entropy.gradient.defined() ? softmax_cross_entropy(args)
                                      : softmax_cross_entropy_loss(args);
  }

  [[nodiscard]] std::size_t classifier_index() const { return norm_->param_count(); }

  const ModelOptions options_;
  const ModelSlices slices_;
  const ClassifierProducts products_;
  const std::unique_ptr<FinalNorm> norm_;
  const std::shared_ptr<TensorGroup> group_;
};

}  // namespace

std::unique_ptr<LossHead> make_classifier_head(const ModelOptions& options,
                                               std::unique_ptr<FinalNorm> norm,
                                               std::shared_ptr<TensorGroup> group) {
  return std::make_unique<ClassifierHead>(options, std::move(norm), std::move(group));
}

}  // namespace sluice
