#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include "runtime/model/blocks/classifier_head.hpp"
#include "runtime/model/blocks/gpt2_units.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/math/explicit_kernels.hpp"

namespace sluice {
namespace {

class FinalLayerNorm final : public FinalNorm {
 public:
  explicit FinalLayerNorm(const ModelOptions& options) : options_(with_defaults(options)) {}

  [[nodiscard]] std::size_t param_count() const override { return 2; }

  [[nodiscard]] Normed forward(std::span<const at::Tensor> params,
                               const at::Tensor& x_NH) const override {
    if (takes_gpu_path(x_NH)) {
      const at::Tensor h_NH = empty_tensor(x_NH.sizes(), x_NH.scalar_type(), x_NH.device());
      const at::Tensor statistics_2N =
          empty_tensor({2, x_NH.size(0)}, c10::ScalarType::Float, x_NH.device());
      norm_forward(h_NH, {x_NH, params[0], params[1], statistics_2N, options_.norm_eps});
      return {h_NH, statistics_2N, {}};
    }
    const auto [h_NH, mean, rstd] =
        at::native_layer_norm(x_NH, {options_.hidden}, params[0], params[1], options_.norm_eps);
    return {h_NH, mean, rstd};
  }

  [[nodiscard]] at::Tensor backward(std::span<const at::Tensor> params, const Backward& given,
                                    GradSink& sink) const override {
    if (takes_gpu_path(given.x_NH)) {
      const NormInput in{given.x_NH, params[0], params[1], given.normed.mean, options_.norm_eps};
      norm_weight_gradient(sink.target(0), sink.target(1), given.dh_NH, in);
      norm_input_gradient(given.dh_NH, given.dh_NH, {}, in);
      return given.dh_NH;
    }
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
