#include <torch/csrc/autograd/custom_function.h>

#include "runtime/model/math/window_attention.hpp"

namespace sluice {
namespace {

namespace ag = torch::autograd;

struct WindowFunction : public ag::Function<WindowFunction> {
  static at::Tensor forward(ag::AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& band) {
    auto [out, lse] = window_attention_forward({q, k, v, band});
    context->save_for_backward({q, k, v, band, out, lse});
    return out;
  }

  static ag::variable_list backward(ag::AutogradContext* context, const ag::variable_list& grads) {
    const ag::variable_list saved = context->get_saved_variables();
    const auto [dq, dk, dv] = window_attention_backward({saved[0], saved[1], saved[2], saved[3]},
                                                        saved[4], saved[5], grads[0]);
    return {dq, dk, dv, at::Tensor()};
  }
};

}  // namespace

at::Tensor window_attention(const WindowCall& call) {
  return WindowFunction::apply(call.q, call.k, call.v, call.band);
}

}  // namespace sluice
