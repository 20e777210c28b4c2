#include "kernels/cpu/update/adamw.hpp"

#include <memory>

#include "base/error.hpp"
#include "kernels/cpu/philox.hpp"
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

UpdateSpan args_for(State& s, DType grad_dtype, DType weights_dtype, std::int64_t begin,
                    std::int64_t n) {
  return {.master = s.p.data() + begin,
          .moments = {s.m.data() + begin, s.v.data() + begin},
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
double oracle(const UpdateSpan& a, double p, double m, double v, double grad) {
  const double g = grad * a.grad_scale + (a.decoupled ? 0 : a.weight_decay * p);
  m = a.beta1 * m + (1 - a.beta1) * g;
  v = a.beta2 * v + (1 - a.beta2) * g * g;
  const double m_hat = a.bias_correction ? m / (1 - std::pow(a.beta1, a.step)) : m;
  const double v_hat = a.bias_correction ? v / (1 - std::pow(a.beta2, a.step)) : v;
  const double kept = a.decoupled ? 1 - a.lr * a.weight_decay : 1;
  return p * kept - a.lr * m_hat / (std::sqrt(v_hat) + a.eps);
}

// The forms of Adam: decoupled or not, with bias correction or without.
constexpr std::pair<bool, bool> kForms[]{
    {true, true}, {false, true}, {true, false}, {false, false}};

TEST(AdamW, FollowsTheRuleForEveryPairOfDTypes) {
  for (const std::int64_t n : {1L, 17L, 1000L}) {
    for (const DType grad : kDTypes) {
      for (const DType weights : kDTypes) {
        const State before = make_state(n, grad, weights);
        std::vector<float> g(static_cast<std::size_t>(n));
        convert(g.data(), DType::kFloat32, before.grad.data(), grad, n);
        on_every_setting([&] {
          for (const auto& [decoupled, bias_correction] : kForms) {
            State s = before;
            UpdateSpan args = args_for(s, grad, weights, 0, n);
            args.decoupled = decoupled;
            args.bias_correction = bias_correction;
            adamw(args);
            EXPECT_EQ(s.weights, as_bytes(s.p, weights));
            for (std::size_t i = 0; i < s.p.size(); ++i) {
              const double want = oracle(args, before.p[i], before.m[i], before.v[i], g[i]);
              EXPECT_NEAR(s.p[i], want, 1e-6 * std::max(1.0, std::abs(want)));
            }
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
        for (std::int64_t step = 1; step <= 4; ++step) {
          const auto run = [&, form = kForms[step - 1]](UpdateSpan args) {
            args.step = step;
            args.decoupled = form.first;
            args.bias_correction = form.second;
            adamw(args);
          };
          run(args_for(whole, dtype, dtype, 0, n));
          const std::int64_t at = (n * step) / 5;
          for (const auto& [begin, count] : {std::pair{std::int64_t{0}, at}, {at, n - at}}) {
            run(args_for(cut, dtype, dtype, begin, count));
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

// From 2^20 elements on, weights are written past the caches, wherever they begin.
TEST(AdamW, LargeWeightsGetTheSameBitsAtEveryAlignment) {
  constexpr std::int64_t kCount = (1 << 20) + 5;
  for (const DType dtype : kDTypes) {
    const State before = make_state(kCount, DType::kBFloat16, dtype);
    for (const Isa isa : isas_here()) {
      for (const std::int64_t offset : {0, 3}) {
        select_isa(isa);
        State s = before;
        std::vector<std::byte> buffer(s.weights.size() + 128);
        void* start = buffer.data();
        std::size_t space = buffer.size();
        ASSERT_NE(std::align(64, s.weights.size() + 64, start, space), nullptr);
        UpdateSpan args = args_for(s, DType::kBFloat16, dtype, 0, kCount);
        args.weights_out = static_cast<std::byte*>(start) + offset * size_of(dtype);
        adamw(args);
        EXPECT_EQ(std::memcmp(args.weights_out, as_bytes(s.p, dtype).data(), s.weights.size()), 0);
      }
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
    UpdateSpan args = args_for(s, DType::kFloat32, DType::kFloat32, 0, n);
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

// --- moments in bf16 ---

constexpr std::uint64_t kSeed = 0x1234567890abcdefU;

struct NarrowState {
  std::vector<float> p;
  std::vector<std::uint16_t> m, v;
  std::vector<std::byte> grad;
  std::vector<std::byte> weights;
};

std::vector<std::uint16_t> bf16_of(const std::vector<float>& values) {
  std::vector<std::uint16_t> result;
  for (const float value : values) result.push_back(bf16_bits(value));
  return result;
}

NarrowState make_narrow(std::int64_t n) {
  const State s = make_state(n, DType::kBFloat16, DType::kBFloat16);
  return {s.p, bf16_of(s.m), bf16_of(s.v), s.grad, s.weights};
}

UpdateSpan narrow_args(NarrowState& s, std::int64_t begin, std::int64_t n, std::int64_t element) {
  return {.master = s.p.data() + begin,
          .moments = {s.m.data() + begin, s.v.data() + begin},
          .grad = s.grad.data() + 2 * begin,
          .grad_dtype = DType::kBFloat16,
          .weights_out = s.weights.data() + 2 * begin,
          .weights_dtype = DType::kBFloat16,
          .n = n,
          .lr = 3e-3,
          .beta2 = 0.95,
          .weight_decay = 0.1,
          .step = 3,
          .grad_scale = 0.37,
          .moments_dtype = DType::kBFloat16,
          .rounding_seed = kSeed,
          .rounding_element = element + begin};
}

// What update_span.hpp promises of element e's random word.
std::uint32_t rounding_word(std::int64_t step, std::uint64_t e) {
  return philox_block(kSeed, static_cast<std::uint64_t>(step), e / 64 * 16 + e % 16)[e / 16 % 4];
}

std::uint16_t rounded_by(float value, std::uint32_t random16) {
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + random16) >> 16);
}

// One step with fp32 moments, its results rounded one by one, is one step with bf16 moments.
TEST(AdamWNarrowMoments, AreTheWideOnesRoundedByTheStatedWords) {
  for (const std::int64_t n : {1L, 17L, 1000L, 50257L}) {
    for (const std::int64_t element : {0L, 7L, (1L << 36) + 48}) {
      const NarrowState before = make_narrow(n);
      NarrowState wide = before;
      std::vector<float> m(before.m.size());
      std::vector<float> v(before.v.size());
      convert(m.data(), DType::kFloat32, before.m.data(), DType::kBFloat16, n);
      convert(v.data(), DType::kFloat32, before.v.data(), DType::kBFloat16, n);
      UpdateSpan args = narrow_args(wide, 0, n, element);
      args.moments_dtype = DType::kFloat32;
      args.moments[0] = m.data();
      args.moments[1] = v.data();
      adamw(args);
      for (std::size_t i = 0; i < m.size(); ++i) {
        const std::uint32_t word = rounding_word(3, static_cast<std::uint64_t>(element) + i);
        wide.m[i] = rounded_by(m[i], word & 0xffffU);
        wide.v[i] = rounded_by(v[i], word >> 16);
      }
      on_every_setting([&] {
        NarrowState s = before;
        adamw(narrow_args(s, 0, n, element));
        EXPECT_EQ(s.p, wide.p);
        EXPECT_EQ(s.weights, wide.weights);
        EXPECT_EQ(s.m, wide.m);
        EXPECT_EQ(s.v, wide.v);
      });
    }
  }
}

TEST(AdamWNarrowMoments, CutsChangeNothing) {
  constexpr std::int64_t kCount = 5003;
  const NarrowState before = make_narrow(kCount);
  NarrowState whole = before;
  adamw(narrow_args(whole, 0, kCount, 5));
  for (const std::int64_t at : {1L, 64L, 777L, 4999L}) {
    NarrowState cut = before;
    adamw(narrow_args(cut, 0, at, 5));
    adamw(narrow_args(cut, at, kCount - at, 5));
    EXPECT_EQ(cut.p, whole.p);
    EXPECT_EQ(cut.m, whole.m);
    EXPECT_EQ(cut.v, whole.v);
  }
}

// beta2 = 0.999 moves v by 1/1000 of a step of bf16 or so: rounding to nearest would never move it.
TEST(AdamWNarrowMoments, SmallChangesAddUpInTheMean) {
  constexpr std::int64_t kCount = 4096;
  constexpr int kSteps = 200;
  const std::vector<float> grad(kCount, 1.0F);
  std::vector<float> p(kCount);
  std::vector<std::uint16_t> m(kCount, bf16_bits(0.5F));
  std::vector<std::uint16_t> v(kCount, bf16_bits(0.5F));
  for (int step = 1; step <= kSteps; ++step) {
    adamw({.master = p.data(),
           .moments = {m.data(), v.data()},
           .grad = grad.data(),
           .n = kCount,
           .lr = 1e-3,
           .step = step,
           .moments_dtype = DType::kBFloat16,
           .rounding_seed = kSeed});
  }
  double mean = 0;
  for (const std::uint16_t bits : v) mean += float_of_bf16(bits) / double{kCount};
  const double want = 1.0 - 0.5 * std::pow(0.999, kSteps);
  // A step of bf16 is 2^-8 here; 200 roundings of 4096 elements leave a mean within 1e-3.
  EXPECT_NEAR(mean, want, 1e-3);
  EXPECT_GT(want - 0.5, 0.05);
}

TEST(AdamWNarrowMoments, NonFiniteOnesStayNonFinite) {
  const std::vector<float> gradients{kInf, kNan, 1e30F, 0.0F, 1e-40F};
  const auto n = static_cast<std::int64_t>(gradients.size());
  on_every_setting([&] {
    std::vector<float> p(gradients.size(), 1.0F);
    std::vector<std::uint16_t> m(gradients.size());
    std::vector<std::uint16_t> v(gradients.size());
    adamw({.master = p.data(),
           .moments = {m.data(), v.data()},
           .grad = gradients.data(),
           .n = n,
           .lr = 1e-3,
           .moments_dtype = DType::kBFloat16,
           .rounding_seed = kSeed});
    EXPECT_EQ(float_of_bf16(m[0]), kInf);
    EXPECT_TRUE(std::isnan(float_of_bf16(m[1])));
    EXPECT_TRUE(std::isnan(float_of_bf16(v[1])));
    EXPECT_EQ(float_of_bf16(v[2]), kInf);
    EXPECT_EQ(m[3], 0);
    EXPECT_EQ(v[3], 0);
    EXPECT_TRUE(std::isfinite(p[4]));
  });
}

TEST(AdamW, FirstStepMovesBySignTimesLr) {
  std::vector<float> p{1.0F, 1.0F}, m(2), v(2), g{5.0F, -1e-3F};
  adamw(
      {.master = p.data(), .moments = {m.data(), v.data()}, .grad = g.data(), .n = 2, .lr = 0.01});
  EXPECT_NEAR(p[0], 0.99F, 1e-6);
  EXPECT_NEAR(p[1], 1.01F, 1e-6);
}

// Weights without decay have the bits of both forms, the signs of zeros included.
TEST(AdamW, WithoutDecayNothingIsAddedToTheGradient) {
  const std::vector<float> gradients{-0.0F, 0.0F, -1.0F, 3.0F};
  std::vector<std::vector<float>> results;
  for (const bool decoupled : {true, false}) {
    std::vector<float> p{1.0F, kInf, 1.0F, -2.0F}, m(4, -0.0F), v(4);
    adamw({.master = p.data(),
           .moments = {m.data(), v.data()},
           .grad = gradients.data(),
           .n = 4,
           .lr = 1e-3,
           .decoupled = decoupled});
    EXPECT_EQ(p[1], kInf);
    EXPECT_TRUE(std::signbit(m[0]));
    p.insert(p.end(), m.begin(), m.end());
    results.push_back(p);
  }
  EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), 8 * sizeof(float)), 0);
}

TEST(AdamW, FormsDifferInTheirConstants) {
  UpdateSpan args{.lr = 0.5, .beta1 = 0.75, .beta2 = 0.75, .weight_decay = 0.25, .step = 1};
  EXPECT_EQ(adamw_constants(args).minus_step_size, -2);
  EXPECT_EQ(adamw_constants(args).inv_sqrt_bias2, 2);
  EXPECT_EQ(adamw_constants(args).decay, 0.875);
  EXPECT_EQ(adamw_constants(args).l2, 0);
  args.decoupled = args.bias_correction = false;
  EXPECT_EQ(adamw_constants(args).minus_step_size, -0.5);
  EXPECT_EQ(adamw_constants(args).inv_sqrt_bias2, 1);
  EXPECT_EQ(adamw_constants(args).decay, 1);
  EXPECT_EQ(adamw_constants(args).l2, 0.25);
}

TEST(AdamW, BiasCorrectionHoldsForLargeSteps) {
  UpdateSpan args{.n = 0, .lr = 1e-3, .step = 1'000'000'000};
  const AdamWConstants c = adamw_constants(args);
  EXPECT_EQ(c.inv_sqrt_bias2, 1.0F);
  EXPECT_EQ(c.minus_step_size, -1e-3F);
  EXPECT_EQ(c.one_minus_beta2, 0.001F);
}

TEST(AdamW, MisuseIsNamed) {
  float x = 0.0F;
  EXPECT_THROW(adamw({.master = &x, .moments = {&x, &x}, .grad = &x, .n = 1, .step = 0}), Error);
  EXPECT_THROW(adamw({.master = &x, .moments = {&x, &x}, .grad = nullptr, .n = 1}), Error);
  UpdateSpan args{.master = &x, .moments = {&x, &x}, .grad = &x, .n = 1};
  args.moments_dtype = DType::kFloat16;
  EXPECT_THROW(adamw(args), Error);
  args.moments_dtype = DType::kFloat32;
  args.rounding_element = -1;
  EXPECT_THROW(adamw(args), Error);
  EXPECT_NO_THROW(adamw({.n = 0}));
}

}  // namespace
}  // namespace sluice::testing
