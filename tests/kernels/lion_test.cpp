#include "kernels/cpu/update/lion.hpp"

#include "tests/kernels/one_moment.hpp"

namespace sluice::testing {
namespace {

OneElement oracle(const UpdateSpan& a, OneElement x, double grad) {
  const double g = grad * a.grad_scale;
  const double mixed = a.beta1 * x.m + (1 - a.beta1) * g;
  const double sign = mixed > 0 ? 1 : mixed < 0 ? -1 : 0;
  return {x.p * (1 - a.lr * a.weight_decay) - a.lr * sign, a.beta2 * x.m + (1 - a.beta2) * g};
}

TEST(Lion, FollowsTheRuleForEveryPairOfDTypes) { expect_follows(lion, oracle); }
TEST(Lion, SameBitsOnEverySettingAndCut) { expect_bits_hold_everywhere(lion); }
TEST(Lion, ANarrowMomentIsRoundedByTheStatedWords) { expect_stated_rounding(lion); }
TEST(Lion, MisuseIsNamed) { expect_misuse_is_named(lion); }

TEST(Lion, ZeroSubnormalAndNanHaveNoSign) {
  const std::vector<float> gradients{0.0F, -0.0F, 1e-40F, -1e-40F, kNan, kInf, -1e-30F, 1e-30F};
  on_every_setting([&] {
    std::vector<float> p(gradients.size(), 1.0F), m(gradients.size());
    lion({.master = p.data(),
          .moments = {m.data()},
          .grad = gradients.data(),
          .n = static_cast<std::int64_t>(p.size()),
          .lr = 0.25});
    EXPECT_EQ(p, (std::vector<float>{1, 1, 1, 1, 1, 0.75, 1.25, 0.75}));
    EXPECT_TRUE(std::isnan(m[4]));
  });
}

}  // namespace
}  // namespace sluice::testing
