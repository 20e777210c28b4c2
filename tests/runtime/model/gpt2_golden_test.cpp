// GPT-2's units against Hugging Face's numbers in fp32: outputs, losses and every gradient.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <map>

#include "runtime/model/gpt2_units.hpp"
#include "runtime/model/tensor_view.hpp"
#include "tests/runtime/model/golden.hpp"

namespace sluice::testing {
namespace {

constexpr double kTolerance = 1e-5;

void expect_close(double ours, double golden, const std::string& what) {
  EXPECT_NEAR(ours / golden, 1.0, kTolerance) << what;
}

// Gradients of Conv1D weights come transposed: as Hugging Face stores them again.
at::Tensor as_stored(const at::Tensor& grad, const nlohmann::json& param) {
  const auto shape = param["shape"].get<std::vector<std::int64_t>>();
  const bool transposed = shape.size() == 2 && grad.size(0) != shape[0];
  const std::string name = param["name"];
  const bool conv1d = name.find(".c_") != std::string::npos && param["kind"] == "matrix";
  EXPECT_TRUE(conv1d || !transposed);
  return conv1d ? grad.t().contiguous() : grad;
}

void expect_gradient(const at::Tensor& grad, const nlohmann::json& param) {
  const std::string name = param["name"];
  const double norm = param["grad_norm"];
  expect_close(norm_of(grad), norm, name);
  const at::Tensor stored = as_stored(grad, param);
  const double scale = norm / std::sqrt(static_cast<double>(grad.numel()));
  for (std::size_t i = 0; i < param["grad_head"].size(); ++i) {
    EXPECT_NEAR(host_data<float>(stored)[i], param["grad_head"][i].get<double>(), 1e-4 * scale)
        << name << "[" << i << "]";
  }
}

ModelOptions options_of(const nlohmann::json& config) {
  ModelOptions options;
  options.layers = config.value("layers", 1);
  options.hidden = config["hidden"];
  options.heads = config["heads"];
  options.vocab = config.value("vocab", 1);
  options.seq = config.value("positions", config["seq"].get<std::int64_t>());
  options.norm_eps = config["norm_eps"];
  return options;
}

TEST(Gpt2Golden, BlockOutputAndGradients) {
  const nlohmann::json golden = load_golden("gpt2_block.json");
  const nlohmann::json& config = golden["config"];
  const std::vector<std::int64_t> shape{config["batch"], config["seq"], config["hidden"]};
  const Model model = make_model(options_of(config));
  std::vector<at::Tensor> params;
  for (std::size_t k = 0; k < golden["params"].size(); ++k) {
    params.push_back(golden_parameter(golden, k, true));
  }
  const at::Tensor x = rule_tensor(1000, shape, 0.5);
  const at::Tensor w = rule_tensor(1001, shape, 1.0);
  std::unique_ptr<Saved> saved;
  const at::Tensor y = model.units[1]->forward({}, params, x, &saved);
  expect_close(y.mul(w).sum(c10::ScalarType::Double).item<double>(), golden["loss"], "loss");
  expect_close(norm_of(y), golden["y_norm"], "y");
  CollectingSink sink(params);
  const at::Tensor dx = model.units[1]->backward({}, params, x, std::move(saved), w, sink);
  expect_close(norm_of(dx), golden["x_grad_norm"], "grad x");
  for (std::size_t k = 0; k < params.size(); ++k) {
    expect_gradient(sink.grad(k), golden["params"][k]);
  }
}

at::Tensor token_tensor(const nlohmann::json& golden, std::int64_t shift) {
  const nlohmann::json& config = golden["config"];
  const std::int64_t batch = config["batch"];
  const std::int64_t seq = config["seq"];
  at::Tensor tokens = at::empty({batch, seq}, c10::ScalarType::Long);
  for (std::int64_t i = 0; i < batch * seq; ++i) {
    host_data<std::int64_t>(tokens)[i] = golden_token(golden, i / seq, i % seq + shift);
  }
  return tokens;
}

class Gpt2GoldenModel : public ::testing::TestWithParam<const char*> {};

TEST_P(Gpt2GoldenModel, LossAndEveryGradient) {
  const nlohmann::json golden = load_golden(GetParam());
  const Model model = make_model(options_of(golden["config"]));
  std::map<std::string, std::size_t> position;
  for (std::size_t k = 0; k < golden["params"].size(); ++k) {
    position[golden["params"][k]["name"].get<std::string>().substr(12)] = k;  // "transformer."
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
  const at::Tensor scratch =
      at::empty({model.head->scratch_bytes(tokens.numel())}, c10::ScalarType::Byte);
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

INSTANTIATE_TEST_SUITE_P(Files, Gpt2GoldenModel,
                         ::testing::Values("gpt2_small.json", "gpt2_odd.json"),
                         [](const auto& info) {
                           const std::string file = info.param;
                           return file.substr(0, file.find('.'));
                         });

}  // namespace
}  // namespace sluice::testing
