#include "kernels/cpu/adamw.hpp"

#include <memory>

#include "kernels/base/error.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {
namespace {

struct State {
  std::vector<float> p, m, v;
  std::vector<std::byte> grad;
  std::vector<std::byte> weights;
};

State make_state(std::int64_t n, DType grad_dtype, DType weights_dtype) {
  State s{normal_values(n, 1),
          normal_values(n, 2, 0.1F),
          normal_values(n, 3, 0.1F),
          as_bytes(normal_values(n, 4), grad_dtype),
          {}};
  for (float& v : s.v) v *= v;
  s.weights.resize(static_cast<std::size_t>(n * size_of(weights_dtype)));
  return s;
}

AdamWArgs args_for(State& s, DType grad_dtype, DType weights_dtype, std::int64_t begin,
                   std::int64_t n) {
  return {.master = s.p.data() + begin,
          .m = s.m.data() + begin,
          .v = s.v.data() + begin,
          .grad = s.grad.data() + begin * size_of(grad_dtype),
          .grad_dtype = grad_dtype,
          .weights_out = s.weights.data() + begin * size_of(weights_dtype),
          .weights_dtype = weights_dtype,
          .n = n,
          .lr = 3e-3,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .eps = 1e-8,
          .weight_decay = 0.1,
          .step = 3,
          .grad_scale = 0.37};
}

// The rule in double, for one element.
double oracle(const AdamWArgs& a, double p, double m, double v, double grad) {
  const double g = grad * a.grad_scale;
  m = a.beta1 * m + (1 - a.beta1) * g;
  v = a.beta2 * v + (1 - a.beta2) * g * g;
  const double m_hat = m / (1 - std::pow(a.beta1, a.step));
  const double v_hat = v / (1 - std::pow(a.beta2, a.step));
  return p * (1 - a.lr * a.weight_decay) - a.lr * m_hat / (std::sqrt(v_hat) + a.eps);
}

TEST(AdamW, FollowsTheRuleForEveryPairOfDTypes) {
  for (const std::int64_t n : {1L, 17L, 1000L}) {
    for (const DType grad : kDTypes) {
      for (const DType weights : kDTypes) {
        const State before = make_state(n, grad, weights);
        std::vector<float> g(static_cast<std::size_t>(n));
        convert(g.data(), DType::kFloat32, before.grad.data(), grad, n);
        on_every_setting([&] {
          State s = before;
          const AdamWArgs args = args_for(s, grad, weights, 0, n);
          adamw(args);
          EXPECT_EQ(s.weights, as_bytes(s.p, weights));
          for (std::size_t i = 0; i < s.p.size(); ++i) {
            const double want = oracle(args, before.p[i], before.m[i], before.v[i], g[i]);
            EXPECT_NEAR(s.p[i], want, 1e-6 * std::max(1.0, std::abs(want)));
          }
        });
      }
    }
  }
}

TEST(AdamW, SameBitsOnEverySettingAndCut) {
  for (const std::int64_t n : kSizes) {
    for (const DType dtype : kDTypes) {
      const State before = make_state(n, dtype, dtype);
      expect_same_bits_everywhere([&] {
        State whole = before;
        State cut = before;
        for (std::int64_t step = 1; step <= 3; ++step) {
          AdamWArgs args = args_for(whole, dtype, dtype, 0, n);
          args.step = step;
          adamw(args);
          const std::int64_t at = (n * step) / 4;
          for (const auto& [begin, count] : {std::pair{std::int64_t{0}, at}, {at, n - at}}) {
            args = args_for(cut, dtype, dtype, begin, count);
            args.step = step;
            adamw(args);
          }
        }
        EXPECT_EQ(whole.p, cut.p);
        EXPECT_EQ(whole.v, cut.v);
        EXPECT_EQ(whole.weights, cut.weights);
        whole.p.insert(whole.p.end(), whole.m.begin(), whole.m.end());
        whole.p.insert(whole.p.end(), whole.v.begin(), whole.v.end());
        return whole.p;
      });
    }
  }
}

// From 2^20 elements on, aligned weights are written past the caches.
TEST(AdamW, LargeAlignedWeightsGetTheSameBits) {
  constexpr std::int64_t kCount = (1 << 20) + 5;
  for (const DType dtype : kDTypes) {
    const State before = make_state(kCount, DType::kBFloat16, dtype);
    for (const Isa isa : isas_here()) {
      select_isa(isa);
      State s = before;
      std::vector<std::byte> buffer(s.weights.size() + 64);
      void* start = buffer.data();
      std::size_t space = buffer.size();
      ASSERT_NE(std::align(64, s.weights.size(), start, space), nullptr);
      AdamWArgs args = args_for(s, DType::kBFloat16, dtype, 0, kCount);
      args.weights_out = start;
      adamw(args);
      EXPECT_EQ(std::memcmp(start, as_bytes(s.p, dtype).data(), s.weights.size()), 0);
    }
  }
  select_isa(detect_isa());
}

TEST(AdamW, ZeroSubnormalAndNonFiniteGradients) {
  const std::vector<float> gradients{0.0F, -0.0F, 1e-40F, -1e-40F, 1e30F, kInf, kNan};
  const auto n = static_cast<std::int64_t>(gradients.size());
  on_every_setting([&] {
    State s{std::vector<float>(gradients.size(), 1.0F),
            std::vector<float>(gradients.size()),
            std::vector<float>(gradients.size()),
            as_bytes(gradients, DType::kFloat32),
            {}};
    AdamWArgs args = args_for(s, DType::kFloat32, DType::kFloat32, 0, n);
    args.weights_out = nullptr;
    args.step = 1;
    args.grad_scale = 1.0;
    adamw(args);
    const auto decayed = static_cast<float>(1.0 - args.lr * args.weight_decay);
    EXPECT_EQ(s.p[0], decayed);
    EXPECT_EQ(s.p[1], decayed);
    EXPECT_NEAR(s.p[2], decayed, 1e-6);
    EXPECT_TRUE(std::isfinite(s.p[3]));
    EXPECT_EQ(s.p[4], decayed);  // g^2 overflows: an infinite second moment, no step
    EXPECT_TRUE(std::isnan(s.p[5]));
    EXPECT_TRUE(std::isnan(s.p[6]));
  });
}

TEST(AdamW, FirstStepMovesBySignTimesLr) {
  std::vector<float> p{1.0F, 1.0F}, m(2), v(2), g{5.0F, -1e-3F};
  adamw({.master = p.data(), .m = m.data(), .v = v.data(), .grad = g.data(), .n = 2, .lr = 0.01});
  EXPECT_NEAR(p[0], 0.99F, 1e-6);
  EXPECT_NEAR(p[1], 1.01F, 1e-6);
}

TEST(AdamW, BiasCorrectionHoldsForLargeSteps) {
  AdamWArgs args{.n = 0, .lr = 1e-3, .step = 1'000'000'000};
  const AdamWConstants c = adamw_constants(args);
  EXPECT_EQ(c.inv_sqrt_bias2, 1.0F);
  EXPECT_EQ(c.minus_step_size, -1e-3F);
  EXPECT_EQ(c.one_minus_beta2, 0.001F);
}

TEST(AdamW, MisuseIsNamed) {
  float x = 0.0F;
  EXPECT_THROW(adamw({.master = &x, .m = &x, .v = &x, .grad = &x, .n = 1, .step = 0}), Error);
  EXPECT_THROW(adamw({.master = &x, .m = &x, .v = &x, .grad = nullptr, .n = 1}), Error);
  EXPECT_NO_THROW(adamw({.n = 0}));
}

}  // namespace
}  // namespace sluice::testing
