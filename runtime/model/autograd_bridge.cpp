// The one place that sees libtorch's autograd API.
#include <torch/csrc/autograd/autograd.h>

#include "runtime/model/autograd_unit.hpp"

namespace sluice {

std::vector<at::Tensor> autograd_gradients(const at::Tensor& output,
                                           const std::vector<at::Tensor>& inputs,
                                           const at::Tensor& grad_output) {
  return torch::autograd::grad({output}, inputs, {grad_output}, /*retain_graph=*/false,
                               /*create_graph=*/false, /*allow_unused=*/false);
}

}  // namespace sluice
