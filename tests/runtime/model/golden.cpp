#include "tests/runtime/model/golden.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>

#include "runtime/model/tensor_view.hpp"

namespace sluice::testing {
namespace {

// Gradients of Conv1D weights come transposed: as Hugging Face stores them again.
at::Tensor as_stored(const at::Tensor& grad, const nlohmann::json& param) {
  const auto shape = param["shape"].get<std::vector<std::int64_t>>();
  const bool transposed = shape.size() == 2 && grad.size(0) != shape[0];
  const std::string name = param["name"];
  const bool conv1d = name.find(".c_") != std::string::npos && param["kind"] == "matrix";
  EXPECT_TRUE(conv1d || !transposed);
  return conv1d ? grad.t().contiguous() : grad;
}

}  // namespace

nlohmann::json load_golden(const std::string& file) {
  std::ifstream stream(std::string(SLUICE_SOURCE_DIR) + "/tests/golden/" + file);
  EXPECT_TRUE(stream.good()) << file;
  return nlohmann::json::parse(stream);
}

at::Tensor rule_tensor(std::uint64_t k, const std::vector<std::int64_t>& shape, double scale,
                       double offset) {
  at::Tensor tensor = at::empty(shape, c10::ScalarType::Float);
  float* out = host_data<float>(tensor);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    auto u = static_cast<std::uint32_t>(static_cast<std::uint64_t>(i) * 2654435761U + k * 40503U +
                                        12345U);
    u ^= u >> 15;
    u *= 2246822519U;
    u ^= u >> 13;
    const double value = (static_cast<double>(u >> 8) / 16777216.0 - 0.5) * 2 * scale;
    out[i] = static_cast<float>(offset + value);
  }
  return tensor;
}

at::Tensor golden_parameter(const nlohmann::json& golden, std::size_t k, bool transpose_conv1d) {
  const nlohmann::json& param = golden["params"][k];
  const std::string kind = param["kind"];
  const double scale = kind == "matrix" ? 0.05 : kind == "bias" ? 0.02 : 0.1;
  const at::Tensor tensor = rule_tensor(k, param["shape"].get<std::vector<std::int64_t>>(), scale,
                                        kind == "norm" ? 1 : 0);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(host_data<float>(tensor)[i], param["init_head"][i].get<float>()) << param["name"];
  }
  const std::string name = param["name"];
  const bool conv1d = name.find(".c_") != std::string::npos && kind == "matrix";
  return transpose_conv1d && conv1d ? tensor.t().contiguous() : tensor;
}

std::int64_t golden_token(const nlohmann::json& golden, std::int64_t b, std::int64_t s) {
  const auto u = static_cast<std::uint32_t>(static_cast<std::uint64_t>(b * 7919 + s * 104729 + 17) *
                                            2654435761U);
  return (u >> 7) % golden["config"]["vocab"].get<std::uint32_t>();
}

at::Tensor token_tensor(const nlohmann::json& golden, std::int64_t shift) {
  const std::int64_t batch = golden["config"]["batch"];
  const std::int64_t seq = golden["config"]["seq"];
  at::Tensor tokens = at::empty({batch, seq}, c10::ScalarType::Long);
  for (std::int64_t i = 0; i < batch * seq; ++i) {
    host_data<std::int64_t>(tokens)[i] = golden_token(golden, i / seq, i % seq + shift);
  }
  return tokens;
}

ModelOptions options_of(const nlohmann::json& config) {
  static const std::map<std::string, ModelType> types{{"gpt2_block", ModelType::kGpt2},
                                                      {"gpt2", ModelType::kGpt2},
                                                      {"llama", ModelType::kLlama},
                                                      {"mistral", ModelType::kMistral},
                                                      {"qwen2", ModelType::kQwen2}};
  ModelOptions options;
  options.type = types.at(config["type"].get<std::string>());
  options.layers = config.value("layers", 1);
  options.hidden = config["hidden"];
  options.heads = config["heads"];
  options.kv_heads = config.value("kv_heads", 0);
  options.ffn = config["ffn"];
  options.vocab = config.value("vocab", 1);
  options.seq = config.value("positions", config["seq"].get<std::int64_t>());
  options.tie_embeddings = config.value("tie_embeddings", true);
  options.norm_eps = config["norm_eps"];
  options.sliding_window = config.value("sliding_window", 0);
  options.rope_theta = config.value("rope_theta", options.rope_theta);
  if (const nlohmann::json scaling = config.value("rope_scaling", nlohmann::json());
      !scaling.is_null()) {
    options.rope_scaling = RopeScaling::kLlama3;
    options.rope_factor = scaling["factor"];
    options.rope_low_freq_factor = scaling["low_freq_factor"];
    options.rope_high_freq_factor = scaling["high_freq_factor"];
    options.rope_original_seq = scaling["original_max_position_embeddings"];
  }
  return options;
}

void expect_close(double ours, double golden, const std::string& what) {
  constexpr double kTolerance = 1e-5;
  EXPECT_NEAR(ours / golden, 1.0, kTolerance) << what;
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

double norm_of(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(c10::ScalarType::Double);
  return std::sqrt(wide.mul(wide).sum().item<double>());
}

CollectingSink::CollectingSink(const std::vector<at::Tensor>& params)
    : written_(params.size(), false) {
  for (const at::Tensor& param : params) {
    grads_.push_back(at::empty(param.sizes(), c10::ScalarType::Float).fill_(std::nan("")));
  }
}

GradTarget CollectingSink::target(int index) {
  const auto i = static_cast<std::size_t>(index);
  const bool accumulate = written_[i];
  written_[i] = true;
  return {grads_[i], accumulate};
}

}  // namespace sluice::testing
