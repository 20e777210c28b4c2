#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include "runtime/model/gpu_path.hpp"
#include "runtime/model/math/biased_linear.hpp"

namespace sluice {
namespace {

namespace ag = torch::autograd;

struct BiasedLinearFunction : public ag::Function<BiasedLinearFunction> {
  static at::Tensor forward(ag::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& bias) {
    context->save_for_backward({x, weight});
    return at::linear(x, weight, bias);
  }

  static ag::variable_list backward(ag::AutogradContext* context, const ag::variable_list& grads) {
    const ag::variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor grad_MO = grads[0].reshape({-1, weight.size(0)});
    const at::Tensor grad_OM = grad_MO.t();
    at::Tensor dx, dweight, dbias;
    if (context->needs_input_grad(0)) dx = at::mm(grad_MO, weight).view(x.sizes());
    if (context->needs_input_grad(1)) dweight = at::mm(grad_OM, x.reshape({-1, x.size(-1)}));
    if (context->needs_input_grad(2)) {
      dbias = at::mv(grad_OM, at::ones({grad_MO.size(0)}, grad_MO.options()));
    }
    return {dx, dweight, dbias};
  }
};

}  // namespace

at::Tensor biased_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (!takes_gpu_path(x)) return at::linear(x, weight, bias);
  return linear_with_bias_product(x, weight, bias);
}

at::Tensor linear_with_bias_product(const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& bias) {
  return BiasedLinearFunction::apply(x, weight, bias);
}

}  // namespace sluice
