#include "tests/runtime/model/golden.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "runtime/model/tensor_view.hpp"

namespace sluice::testing {

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
