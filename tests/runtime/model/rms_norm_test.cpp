// RMSNorm's written-out backward against libtorch's of its forward, over more rows than one chunk.
#include "runtime/model/math/rms_norm.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "runtime/model/autograd_unit.hpp"
#include "tests/runtime/model/golden.hpp"

namespace sluice::testing {
namespace {

TEST(RmsNorm, BackwardEqualsAutograd) {
  constexpr std::int64_t kRows = 601;
  constexpr std::int64_t kHidden = 35;
  constexpr double kEps = 1e-3;
  const at::Tensor x = rule_tensor(1, {kRows, kHidden}, 0.3).requires_grad_(true);
  const at::Tensor weight = rule_tensor(2, {kHidden}, 0.5, 1).requires_grad_(true);
  const at::Tensor dy = rule_tensor(3, {kRows, kHidden}, 1.0);
  const auto expected = root_of(rms_norm(x, weight, kEps))->gradients({x, weight}, dy);
  const at::Tensor rows = x.detach();
  const at::Tensor rstd = rms_norm_rstd(rows, kEps);
  for (const bool accumulate : {false, true}) {
    at::Tensor dweight = at::empty({kHidden}, c10::ScalarType::Float).fill_(2.0);
    const at::Tensor dx =
        rms_norm_backward({rows, weight.detach(), rstd, dy}, {dweight, accumulate});
    EXPECT_LT(norm_of(dx.sub(expected[0])), 1e-6 * norm_of(expected[0]));
    if (accumulate) dweight = dweight.sub(2.0);
    EXPECT_LT(norm_of(dweight.sub(expected[1])), 2e-6 * norm_of(expected[1]));
  }
}

}  // namespace
}  // namespace sluice::testing
