#include "runtime/model/blocks/classifier_head.hpp"
#include "runtime/model/blocks/llama_units.hpp"
#include "runtime/model/math/rms_norm.hpp"

namespace sluice {
namespace {

class FinalRmsNorm final : public FinalNorm {
 public:
  explicit FinalRmsNorm(double eps) : eps_(eps) {}

  [[nodiscard]] std::size_t param_count() const override { return 1; }

  [[nodiscard]] Normed forward(std::span<const at::Tensor> params,
                               const at::Tensor& x_NH) const override {
    const at::Tensor rstd = rms_norm_rstd(x_NH, eps_);
    const at::Tensor normed = x_NH.mul(rstd).to(x_NH.scalar_type());
    return {normed.mul(params[0]), {}, rstd};
  }

  [[nodiscard]] at::Tensor backward(std::span<const at::Tensor> params, const Backward& given,
                                    GradSink& sink) const override {
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
