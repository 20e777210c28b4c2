// The loss head of every model: a norm, the classifier and cross entropy, in chunks of rows. Only
// the norm differs between models.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/model/model_options.hpp"
#include "runtime/model/tensor_group.hpp"
#include "runtime/model/unit.hpp"

namespace sluice {

// Without autograd. N rows of H. The norm's parameters are the first of the head's; the classifier
// [V, H] follows.
class FinalNorm {
 public:
  struct Normed {
    at::Tensor h_NH;
    at::Tensor mean;  // of a row (a GPU's LayerNorm: [2, N], with rstd); undefined for RMSNorm
    at::Tensor rstd;
  };
  struct Backward {
    const at::Tensor& x_NH;
    const Normed& normed;
    const at::Tensor& dh_NH;
  };

  virtual ~FinalNorm() = default;
  [[nodiscard]] virtual std::size_t param_count() const = 0;
  [[nodiscard]] virtual Normed forward(std::span<const at::Tensor> params,
                                       const at::Tensor& x_NH) const = 0;
  // dx; the parameters' gradients go to the sink.
  [[nodiscard]] virtual at::Tensor backward(std::span<const at::Tensor> params,
                                            const Backward& given, GradSink& sink) const = 0;
};

// `group`: the tensor-parallel ranks over which the classifier's words are cut; null: one rank has
// all. With a group loss() returns the same sum on every rank, and logits() returns all words on
// every rank.
[[nodiscard]] std::unique_ptr<LossHead> make_classifier_head(
    const ModelOptions& options, std::unique_ptr<FinalNorm> norm,
    std::shared_ptr<TensorGroup> group = {});

}  // namespace sluice
