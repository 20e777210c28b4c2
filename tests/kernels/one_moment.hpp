// What the tests of an optimizer with one moment share.
#pragma once

#include "base/error.hpp"
#include "kernels/cpu/philox.hpp"
#include "kernels/cpu/update/update_span.hpp"
#include "tests/kernels/support.hpp"

namespace sluice::testing {

using UpdateFunction = void (*)(const UpdateSpan&);

// Weights and moment of one element.
struct OneElement {
  double p = 0, m = 0;
};

struct OneMoment {
  std::vector<float> p;
  std::vector<std::byte> m, grad, weights;
  DType m_dtype = DType::kFloat32, grad_dtype = DType::kFloat32, weights_dtype = DType::kFloat32;

  OneMoment(std::int64_t n, DType of_m, DType of_grad, DType of_weights)
      : p(normal_values(n, 1)),
        m(as_bytes(normal_values(n, 2, 0.1F), of_m)),
        grad(as_bytes(normal_values(n, 4), of_grad)),
        weights(static_cast<std::size_t>(n * size_of(of_weights))),
        m_dtype(of_m),
        grad_dtype(of_grad),
        weights_dtype(of_weights) {}

  UpdateSpan span(std::int64_t begin, std::int64_t n) {
    return {.master = p.data() + begin,
            .moments = {m.data() + begin * size_of(m_dtype)},
            .grad = grad.data() + begin * size_of(grad_dtype),
            .grad_dtype = grad_dtype,
            .weights_out = weights.data() + begin * size_of(weights_dtype),
            .weights_dtype = weights_dtype,
            .n = n,
            .lr = 3e-3,
            .beta1 = 0.9,
            .beta2 = 0.99,
            .weight_decay = 0.1,
            .momentum = 0.8,
            .step = 3,
            .grad_scale = 0.37,
            .moments_dtype = m_dtype,
            .rounding_seed = 77,
            .rounding_element = 5 + begin};
  }
  std::vector<std::byte> all_bytes() const {
    std::vector<std::byte> all = as_bytes(p, DType::kFloat32);
    all.insert(all.end(), m.begin(), m.end());
    all.insert(all.end(), weights.begin(), weights.end());
    return all;
  }
};

inline std::vector<float> floats_of(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / static_cast<std::size_t>(size_of(dtype)));
  convert(values.data(), DType::kFloat32, bytes.data(), dtype,
          static_cast<std::int64_t>(values.size()));
  return values;
}

// oracle(span, OneElement before, gradient): the element afterwards, in double.
template <class Oracle>
void expect_follows(UpdateFunction update, const Oracle& oracle) {
  constexpr std::int64_t kCount = 1003;
  for (const DType grad : kDTypes) {
    for (const DType weights : kDTypes) {
      const OneMoment before(kCount, DType::kFloat32, grad, weights);
      const std::vector<float> m = floats_of(before.m, DType::kFloat32);
      const std::vector<float> g = floats_of(before.grad, grad);
      on_every_setting([&] {
        OneMoment now = before;
        const UpdateSpan span = now.span(0, kCount);
        update(span);
        EXPECT_EQ(now.weights, as_bytes(now.p, weights));
        const std::vector<float> new_m = floats_of(now.m, DType::kFloat32);
        for (std::size_t i = 0; i < g.size(); ++i) {
          const OneElement want = oracle(span, {before.p[i], m[i]}, g[i]);
          EXPECT_NEAR(now.p[i], want.p, 1e-6 * std::max(1.0, std::abs(want.p))) << i;
          EXPECT_NEAR(new_m[i], want.m, 1e-6 * std::max(1.0, std::abs(want.m))) << i;
        }
      });
    }
  }
}

inline void expect_bits_hold_everywhere(UpdateFunction update) {
  for (const std::int64_t n : kSizes) {
    for (const DType moment : {DType::kFloat32, DType::kBFloat16}) {
      const OneMoment before(n, moment, DType::kFloat32, DType::kBFloat16);
      expect_same_bits_everywhere([&] {
        OneMoment whole = before, cut = before;
        for (std::int64_t step = 1; step <= 3; ++step) {
          const auto run = [&](OneMoment& state, std::int64_t begin, std::int64_t count) {
            UpdateSpan span = state.span(begin, count);
            span.step = step;
            update(span);
          };
          run(whole, 0, n);
          run(cut, 0, n * step / 4);
          run(cut, n * step / 4, n - n * step / 4);
        }
        EXPECT_EQ(whole.all_bytes(), cut.all_bytes());
        return whole.all_bytes();
      });
    }
  }
}

// A moment in bf16 is the fp32 one, rounded by the low halves of the words of update_span.hpp.
inline void expect_stated_rounding(UpdateFunction update) {
  constexpr std::int64_t kCount = 1003;
  OneMoment narrow(kCount, DType::kBFloat16, DType::kFloat32, DType::kFloat32);
  OneMoment wide = narrow;
  wide.m = as_bytes(floats_of(narrow.m, DType::kBFloat16), DType::kFloat32);
  wide.m_dtype = DType::kFloat32;
  update(narrow.span(0, kCount));
  update(wide.span(0, kCount));
  EXPECT_EQ(narrow.p, wide.p);
  const std::vector<float> want = floats_of(wide.m, DType::kFloat32);
  const std::vector<float> have = floats_of(narrow.m, DType::kBFloat16);
  for (std::size_t i = 0; i < want.size(); ++i) {
    const std::uint64_t e = 5 + i;
    const std::uint32_t word = philox_block(77, 3, e / 64 * 16 + e % 16)[e / 16 % 4];
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(want[i]) + (word & 0xffffU);
    EXPECT_EQ(have[i], std::bit_cast<float>(bits & 0xffff0000U)) << i;
  }
}

inline void expect_misuse_is_named(UpdateFunction update) {
  float x = 0;
  UpdateSpan span{.master = &x, .moments = {&x}, .grad = &x, .n = 1};
  EXPECT_NO_THROW(update(span));
  span.moments[0] = nullptr;
  EXPECT_THROW(update(span), Error);
  span = {.master = &x, .moments = {&x}, .grad = &x, .n = 1, .moments_dtype = DType::kFloat16};
  EXPECT_THROW(update(span), Error);
  EXPECT_NO_THROW(update({}));
}

}  // namespace sluice::testing
