#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include "runtime/model/blocks/classifier_head.hpp"
#include "runtime/model/blocks/gpt2_units.hpp"

namespace sluice {
namespace {

class FinalLayerNorm final : public FinalNorm {
 public:
  explicit FinalLayerNorm(const ModelOptions& options) : options_(with_defaults(options)) {}

  [[nodiscard]] std::size_t param_count() const override { return 2; }

  [[nodiscard]] Normed forward(std::span<const at::Tensor> params,
                               const at::Tensor& x_NH) const override {
    const auto [h_NH, mean, rstd] =
        at::native_layer_norm(x_NH, {options_.hidden}, params[0], params[1], options_.norm_eps);
    return {h_NH, mean, rstd};
  }

  [[nodiscard]] at::Tensor backward(std::span<const at::Tensor> params, const Backward& given,
                                    GradSink& sink) const override {
    const auto [dx, dweight, dbias] = at::native_layer_norm_backward(
        given.dh_NH, given.x_NH, {options_.hidden}, given.normed.mean, given.normed.rstd, params[0],
        params[1], {true, true, true});
    store_gradient(sink.target(0), dweight);
    store_gradient(sink.target(1), dbias);
    return dx;
  }

 private:
  const ModelOptions options_;
};

}  // namespace

std::unique_ptr<LossHead> make_layer_norm_head(const ModelOptions& options,
                                               std::shared_ptr<TensorGroup> group) {
  return make_classifier_head(options, std::make_unique<FinalLayerNorm>(options), std::move(group));
}

}  // namespace sluice
