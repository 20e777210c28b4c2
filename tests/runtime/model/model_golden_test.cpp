// Whole models of every family against Hugging Face's numbers in fp32: losses and every gradient.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "runtime/model/tensor_view.hpp"
#include "runtime/model/units.hpp"
#include "tests/runtime/model/golden.hpp"

namespace sluice::testing {
namespace {

class GoldenModel : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenModel, LossAndEveryGradient) {
  const nlohmann::json golden = load_golden(GetParam());
  const Model model = make_model(options_of(golden["config"]));
  std::map<std::string, std::size_t> position;
  for (std::size_t k = 0; k < golden["params"].size(); ++k) {
    std::string name = golden["params"][k]["name"];
    if (name.starts_with("transformer.")) name = name.substr(name.find('.') + 1);
    position[name] = k;
  }
  std::vector<std::vector<at::Tensor>> params;
  std::vector<std::vector<std::size_t>> golden_index;
  for (const UnitSpec& unit : model.spec.units) {
    params.emplace_back();
    golden_index.emplace_back();
    for (const ParamRef& ref : unit.params) {
      const std::string& name = model.spec.groups[static_cast<std::size_t>(ref.group)]
                                    .params[static_cast<std::size_t>(ref.index)]
                                    .tensor.name;
      golden_index.back().push_back(position.at(name));
      params.back().push_back(golden_parameter(golden, position.at(name), true));
    }
  }
  const at::Tensor tokens = token_tensor(golden, 0);
  const at::Tensor targets = token_tensor(golden, 1);
  std::vector<at::Tensor> inputs{tokens};
  std::vector<std::unique_ptr<Saved>> saved(model.units.size());
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    inputs.push_back(model.units[u]->forward({}, params[u], inputs[u], &saved[u]));
  }
  const at::Tensor scratch = at::empty({model.head->scratch_bytes(tokens.numel(), DType::kFloat32)},
                                       c10::ScalarType::Byte);
  const auto count = static_cast<double>(tokens.numel());
  std::map<std::size_t, at::Tensor> grads;
  const auto collect = [&](const CollectingSink& sink, std::size_t u) {
    for (std::size_t i = 0; i < params[u].size(); ++i) {
      at::Tensor& grad = grads[golden_index[u][i]];
      grad = grad.defined() ? grad.add(sink.grad(i)) : sink.grad(i);
    }
  };
  at::Tensor gradient;
  CollectingSink head_sink(params.back());
  const double loss = model.head->loss(params.back(), inputs.back(), targets, 1.0 / count, scratch,
                                       &head_sink, &gradient);
  collect(head_sink, params.size() - 1);
  expect_close(loss / count, golden["loss"], "loss");
  EXPECT_EQ(model.head->loss(params.back(), inputs.back(), targets, 1.0, scratch, nullptr, nullptr),
            loss);
  for (std::size_t u = model.units.size(); u-- > 0;) {
    CollectingSink sink(params[u]);
    gradient =
        model.units[u]->backward({}, params[u], inputs[u], std::move(saved[u]), gradient, sink);
    collect(sink, u);
  }
  ASSERT_EQ(grads.size(), golden["params"].size());
  double squares = 0;
  for (const auto& [k, grad] : grads) {
    squares += std::pow(norm_of(grad), 2);
    expect_gradient(grad, golden["params"][k]);
  }
  expect_close(std::sqrt(squares), golden["grad_norm"], "global norm");
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenModel,
                         ::testing::Values("gpt2_small.json", "gpt2_odd.json", "llama.json",
                                           "llama3_rope.json", "mistral.json", "qwen2.json"),
                         [](const auto& info) {
                           const std::string file = info.param;
                           return file.substr(0, file.find('.'));
                         });

}  // namespace
}  // namespace sluice::testing
