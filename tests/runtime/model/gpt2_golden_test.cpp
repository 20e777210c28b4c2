// A GPT-2 block against Hugging Face's numbers in fp32: output and every gradient.
#include <gtest/gtest.h>

#include "runtime/model/units.hpp"
#include "tests/runtime/model/golden.hpp"

namespace sluice::testing {
namespace {

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

}  // namespace
}  // namespace sluice::testing
