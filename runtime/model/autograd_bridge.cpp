// The one place that sees libtorch's autograd engine.
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "parallel/comm/cuda_module.hpp"
#include "runtime/model/autograd_unit.hpp"

namespace sluice {
namespace {

namespace ag = torch::autograd;

class EngineRoot final : public GraphRoot {
 public:
  explicit EngineRoot(const at::Tensor& output) : root_(ag::impl::gradient_edge(output)) {}

  std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& inputs,
                                    const at::Tensor& grad_output) override {
    note_autograd();
    ag::edge_list wanted;
    for (const at::Tensor& input : inputs) wanted.push_back(ag::impl::gradient_edge(input));
    const ag::edge_list roots{std::exchange(root_, ag::Edge())};
    return ag::Engine::get_default_engine().execute(roots, {grad_output}, /*keep_graph=*/false,
                                                    /*create_graph=*/false,
                                                    /*accumulate_grad=*/false, wanted);
  }

 private:
  ag::Edge root_;
};

}  // namespace

std::unique_ptr<GraphRoot> root_of(const at::Tensor& output) {
  return std::make_unique<EngineRoot>(output);
}

}  // namespace sluice
