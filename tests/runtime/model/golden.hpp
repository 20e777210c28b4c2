// Golden numbers of tests/golden: the files' integer rules for weights, inputs and tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/model/model_options.hpp"
#include "runtime/model/unit.hpp"

namespace sluice::testing {

[[nodiscard]] nlohmann::json load_golden(const std::string& file);

// value(k, i, scale) of the rule, i = 0 .. numel - 1.
[[nodiscard]] at::Tensor rule_tensor(std::uint64_t k, const std::vector<std::int64_t>& shape,
                                     double scale, double offset = 0);

// Parameter number k of the file, as Hugging Face stores it; checked against init_head. gpt2's
// Conv1D weights are then transposed to [out, in] where `transpose_conv1d`.
[[nodiscard]] at::Tensor golden_parameter(const nlohmann::json& golden, std::size_t k,
                                          bool transpose_conv1d);

[[nodiscard]] std::int64_t golden_token(const nlohmann::json& golden, std::int64_t b,
                                        std::int64_t s);

// [batch, seq] int64: the tokens from position `shift` on.
[[nodiscard]] at::Tensor token_tensor(const nlohmann::json& golden, std::int64_t shift);

[[nodiscard]] ModelOptions options_of(const nlohmann::json& config);

// Within 1e-5 of Hugging Face's: a number, a gradient's norm; and its first elements on the scale
// of the tensor.
void expect_close(double ours, double golden, const std::string& what);
void expect_gradient(const at::Tensor& grad, const nlohmann::json& param);

// L2 norm in double.
[[nodiscard]] double norm_of(const at::Tensor& tensor);

// Gradients of one unit, in its parameters' order.
class CollectingSink final : public GradSink {
 public:
  explicit CollectingSink(const std::vector<at::Tensor>& params);
  GradTarget target(int index) override;
  [[nodiscard]] const at::Tensor& grad(std::size_t index) const { return grads_[index]; }

 private:
  std::vector<at::Tensor> grads_;
  std::vector<bool> written_;
};

}  // namespace sluice::testing
