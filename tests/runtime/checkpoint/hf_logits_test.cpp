// Models read from Hugging Face folders compute what transformers computes with them, in fp32.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/checkpoint/hf/hf_config.hpp"
#include "runtime/checkpoint/hf/hf_weights.hpp"
#include "runtime/model/tensor_view.hpp"
#include "runtime/model/units.hpp"

namespace sluice {
namespace {

struct Case {
  const char* family;
  bool explicit_units;
};

class HfLogits : public ::testing::TestWithParam<Case> {};

at::Tensor parameter(const HfWeights& weights, const ParamSpec& param) {
  at::Tensor tensor = at::empty(param.tensor.shape, c10::ScalarType::Float);
  weights.read(param.tensor.name, 0,
               {host_data<float>(tensor), static_cast<std::size_t>(tensor.numel())});
  return tensor;
}

TEST_P(HfLogits, AreThoseOfTransformers) {
  const std::string dir = std::string(SLUICE_SOURCE_DIR "/tests/golden/hf/") + GetParam().family;
  std::ifstream stream(dir + "/logits.json");
  const nlohmann::json golden = nlohmann::json::parse(stream);
  ModelOptions options = read_hf_config(dir + "/config.json");
  options.explicit_units = GetParam().explicit_units;
  const Model model = make_model(options);
  const HfWeights weights(dir, options, model.spec);
  std::vector<std::vector<at::Tensor>> params;
  for (const UnitSpec& unit : model.spec.units) {
    params.emplace_back();
    for (const ParamRef& ref : unit.params) {
      params.back().push_back(
          parameter(weights, model.spec.groups[static_cast<std::size_t>(ref.group)]
                                 .params[static_cast<std::size_t>(ref.index)]));
    }
  }
  const auto count = static_cast<std::int64_t>(golden["tokens"].size());
  at::Tensor x = at::empty({1, count}, c10::ScalarType::Long);
  for (std::int64_t i = 0; i < count; ++i) {
    host_data<std::int64_t>(x)[i] = golden["tokens"][static_cast<std::size_t>(i)];
  }
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    x = model.units[u]->forward({}, params[u], x, nullptr);
  }
  double largest = 0;
  for (std::int64_t position = 0; position < count; ++position) {
    const at::Tensor logits = model.head->logits(params.back(), x, position);
    for (std::int64_t v = 0; v < options.vocab; ++v) {
      const double expected =
          golden["logits"][static_cast<std::size_t>(position)][static_cast<std::size_t>(v)];
      largest = std::max(largest, std::abs(expected));
      ASSERT_NEAR(host_data<float>(logits)[v], expected, 1e-5 * std::max(1.0, std::abs(expected)))
          << "position " << position << ", id " << v;
    }
  }
  EXPECT_GT(largest, 1);
}

INSTANTIATE_TEST_SUITE_P(All, HfLogits,
                         ::testing::Values(Case{"gpt2", true}, Case{"gpt2", false},
                                           Case{"llama", true}, Case{"llama", false},
                                           Case{"mistral", true}, Case{"mistral", false},
                                           Case{"qwen2", true}, Case{"qwen2", false}),
                         [](const auto& info) {
                           return std::string(info.param.family) +
                                  (info.param.explicit_units ? "Explicit" : "Autograd");
                         });

}  // namespace
}  // namespace sluice
