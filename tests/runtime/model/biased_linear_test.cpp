// The linear layer that autograd units take on a GPU, against libtorch's on this device.
#include "runtime/model/math/biased_linear.hpp"

#include <ATen/ops/linear.h>
#include <gtest/gtest.h>

#include "runtime/model/autograd_unit.hpp"
#include "tests/runtime/model/golden.hpp"

namespace sluice::testing {
namespace {

TEST(BiasedLinear, ValuesAndGradientsAreLibtorchs) {
  const at::Tensor weight = rule_tensor(2, {7, 35}, 0.5).requires_grad_(true);
  const at::Tensor bias = rule_tensor(3, {7}, 0.5).requires_grad_(true);
  for (const std::vector<std::int64_t>& rows : {std::vector<std::int64_t>{3, 41}, {601}}) {
    std::vector<std::int64_t> in = rows, out = rows;
    in.push_back(35);
    out.push_back(7);
    const at::Tensor x = rule_tensor(1, in, 0.3).requires_grad_(true);
    const at::Tensor dy = rule_tensor(4, out, 1.0);
    const at::Tensor wanted = at::linear(x, weight, bias);
    const at::Tensor y = linear_with_bias_product(x, weight, bias);
    EXPECT_EQ(norm_of(y.sub(wanted)), 0);
    const auto expected = root_of(wanted)->gradients({x, weight, bias}, dy);
    const auto gradients = root_of(y)->gradients({x, weight, bias}, dy);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(gradients[i].sizes(), expected[i].sizes());
      EXPECT_LT(norm_of(gradients[i].sub(expected[i])), 2e-6 * norm_of(expected[i])) << i;
    }
  }
}

// A frozen weight, and an input that nothing trains before.
TEST(BiasedLinear, MakesOnlyTheGradientsAskedFor) {
  const at::Tensor x = rule_tensor(1, {5, 3}, 0.3), weight = rule_tensor(2, {2, 3}, 0.5);
  const at::Tensor bias = rule_tensor(3, {2}, 0.5).requires_grad_(true);
  const at::Tensor dy = rule_tensor(4, {5, 2}, 1.0);
  const auto gradients = root_of(linear_with_bias_product(x, weight, bias))->gradients({bias}, dy);
  EXPECT_LT(norm_of(gradients[0].sub(dy.sum(0))), 2e-6 * norm_of(dy));
}

}  // namespace
}  // namespace sluice::testing
