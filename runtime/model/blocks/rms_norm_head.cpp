#include "runtime/model/blocks/classifier_head.hpp"
#include "runtime/model/blocks/llama_units.hpp"
#include "runtime/model/empty_tensor.hpp"
#include "runtime/model/gpu_path.hpp"
#include "runtime/model/math/explicit_kernels.hpp"
#include "runtime/model/math/rms_norm.hpp"

namespace sluice {
namespace {

class FinalRmsNorm final : public FinalNorm {
 public:
  explicit FinalRmsNorm(double eps) : eps_(eps) {}

  [[nodiscard]] std::size_t param_count() const override { return 1; }

  [[nodiscard]] Normed forward(std::span<const at::Tensor> params,
                               const at::Tensor& x_NH) const override {
    if (takes_gpu_path(x_NH)) {
      const at::Tensor h_NH = empty_tensor(x_NH.sizes(), x_NH.scalar_type(), x_NH.device());
      const at::Tensor rstd_N = empty_tensor({x_NH.size(0)}, c10::ScalarType::Float, x_NH.device());
      rms_forward(h_NH, {x_NH, params[0], rstd_N, eps_});
      return {h_NH, {}, rstd_N};
    }
    const at::Tensor rstd = rms_norm_rstd(x_NH, eps_);
    const at::Tensor normed = x_NH.mul(rstd).to(x_NH.scalar_type());
    return {normed.mul(params[0]), {}, rstd};
  }

  [[nodiscard]] at::Tensor backward(std::span<const at::Tensor> params, const Backward& given,
                                    GradSink& sink) const override {
    if (takes_gpu_path(given.x_NH)) {
      const RmsInput in{given.x_NH, params[0], given.normed.rstd, eps_};
      rms_weight_gradient(sink.target(0), given.dh_NH, in);
      rms_input_gradient(given.dh_NH, given.dh_NH, {}, in);
      return given.dh_NH;
    }
    return rms_norm_backward({given.x_NH, params[0], given.normed.rstd, given.dh_NH},
                             sink.target(0));
  }

 private:
  const double eps_;
};

}  // namespace

std::unique_ptr<LossHead> make_rms_norm_head(const ModelOptions& options,
                                             std::shared_ptr<TensorGroup> group) {
  return make_classifier_head(
      options, std::make_unique<FinalRmsNorm>(with_defaults(options).norm_eps), std::move(group));
}

}  // namespace sluice
