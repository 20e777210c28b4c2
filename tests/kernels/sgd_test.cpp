#include "kernels/cpu/update/sgd.hpp"

#include "tests/kernels/one_moment.hpp"

namespace sluice::testing {
namespace {

OneElement oracle(const UpdateSpan& a, OneElement x, double grad) {
  const double m = a.momentum * x.m + grad * a.grad_scale + a.weight_decay * x.p;
  return {x.p - a.lr * m, m};
}

TEST(Sgd, FollowsTheRuleForEveryPairOfDTypes) { expect_follows(sgd, oracle); }
TEST(Sgd, SameBitsOnEverySettingAndCut) { expect_bits_hold_everywhere(sgd); }
TEST(Sgd, ANarrowMomentIsRoundedByTheStatedWords) { expect_stated_rounding(sgd); }
TEST(Sgd, MisuseIsNamed) { expect_misuse_is_named(sgd); }

TEST(Sgd, WithoutMomentumIsAStepAlongTheGradient) {
  std::vector<float> p{1.0F, -2.0F}, m{5.0F, 5.0F}, g{4.0F, 8.0F};
  sgd({.master = p.data(),
       .moments = {m.data()},
       .grad = g.data(),
       .n = 2,
       .lr = 0.25,
       .momentum = 0});
  EXPECT_EQ(p, (std::vector<float>{0, -4}));
  EXPECT_EQ(m, g);
}

}  // namespace
}  // namespace sluice::testing
