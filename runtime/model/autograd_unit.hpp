// A unit written as any differentiable libtorch code: subclasses say the forward, libtorch's
// autograd gives the backward. The oracle for units that write out their own.
#pragma once

#include "runtime/model/unit.hpp"

namespace sluice {

class AutogradUnit : public Unit {
 public:
  at::Tensor forward(const UnitCall& call, std::span<const at::Tensor> params,
                     const at::Tensor& input, std::unique_ptr<Saved>* saved) final;
  at::Tensor backward(const UnitCall& call, std::span<const at::Tensor> params,
                      const at::Tensor& input, std::unique_ptr<Saved> saved,
                      const at::Tensor& grad_output, GradSink& sink) final;

 protected:
  // Differentiable in input and params. Deterministic: the same call gives the same bits.
  [[nodiscard]] virtual at::Tensor compute(const UnitCall& call, std::span<const at::Tensor> params,
                                           const at::Tensor& input) const = 0;
};

// Gradients of `output` by each of `inputs`, times grad_output; releases the graph.
[[nodiscard]] std::vector<at::Tensor> autograd_gradients(const at::Tensor& output,
                                                         const std::vector<at::Tensor>& inputs,
                                                         const at::Tensor& grad_output);

}  // namespace sluice
