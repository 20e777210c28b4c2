// A unit written as any differentiable libtorch code: a subclass computes the forward, libtorch's
// autograd gives the backward. The oracle for explicit units.
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
  // Must be differentiable in input and params, and deterministic: equal calls give equal bits.
  [[nodiscard]] virtual at::Tensor compute(const UnitCall& call, std::span<const at::Tensor> params,
                                           const at::Tensor& input) const = 0;
};

// The root of an autograd graph without the output tensor. The output's memory can then be freed as
// soon as the next unit no longer needs it.
class GraphRoot {
 public:
  virtual ~GraphRoot() = default;
  // Gradients by each of `inputs` (leaves) of output times grad_output. Call once: releases the
  // graph.
  [[nodiscard]] virtual std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& inputs,
                                                          const at::Tensor& grad_output) = 0;
};

// REQUIRES: `output` was computed with gradients on.
[[nodiscard]] std::unique_ptr<GraphRoot> root_of(const at::Tensor& output);

}  // namespace sluice
