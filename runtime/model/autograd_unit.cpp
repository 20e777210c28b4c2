#include "runtime/model/autograd_unit.hpp"

#include <c10/core/GradMode.h>

#include "base/error.hpp"

namespace sluice {
namespace {

struct Graph : Saved {
  at::Tensor input;
  std::vector<at::Tensor> params;
  std::unique_ptr<GraphRoot> root;
};

// A leaf on the same storage, so that a group that is gathered elsewhere later moves under it.
at::Tensor leaf_of(const at::Tensor& tensor) { return tensor.detach().requires_grad_(true); }

}  // namespace

at::Tensor AutogradUnit::forward(const UnitCall& call, std::span<const at::Tensor> params,
                                 const at::Tensor& input, std::unique_ptr<Saved>* saved) {
  if (saved == nullptr) {
    const c10::AutoGradMode no_graph(false);
    return compute(call, params, input);
  }
  const c10::AutoGradMode graph_on(true);
  auto graph = std::make_unique<Graph>();
  graph->input = leaf_of(input);
  for (const at::Tensor& param : params) graph->params.push_back(leaf_of(param));
  const at::Tensor output = compute(call, graph->params, graph->input);
  graph->root = root_of(output);
  *saved = std::move(graph);
  return output.detach();
}

at::Tensor AutogradUnit::backward(const UnitCall& call, std::span<const at::Tensor> params,
                                  const at::Tensor& input, std::unique_ptr<Saved> saved,
                                  const at::Tensor& grad_output, GradSink& sink) {
  if (!saved) (void)forward(call, params, input, &saved);
  auto* graph = dynamic_cast<Graph*>(saved.get());
  check(graph != nullptr, "backward is given what this unit saved");
  std::vector<at::Tensor> inputs{graph->input};
  std::vector<GradTarget> targets;
  for (std::size_t i = 0; i < graph->params.size(); ++i) {
    GradTarget target = sink.target(static_cast<int>(i));
    if (!target.wanted()) continue;
    inputs.push_back(graph->params[i]);
    targets.push_back(std::move(target));
  }
  const std::vector<at::Tensor> grads = graph->root->gradients(inputs, grad_output);
  const c10::AutoGradMode no_graph(false);
  for (std::size_t i = 0; i < targets.size(); ++i) store_gradient(targets[i], grads[i + 1]);
  return grads[0];
}

}  // namespace sluice
