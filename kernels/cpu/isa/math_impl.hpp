// exp, reductions, softmax rows and activations over one range, as templates over a back end S.
#pragma once

#include <cstdint>

#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/isa/elementwise_impl.hpp"

namespace sluice::isa {

// Within 2e-7 relative for -87 <= x <= 88.3; 0 below, infinity from 88.4 on, NaN for NaN.
// x = n ln 2 + r, |r| <= ln 2 / 2: exp x = 2^n P(r), P interpolates exp at the Chebyshev nodes.
template <class S>
typename S::F exp_lanes(typename S::F x) {
  const auto bounded = S::min(S::set1(89.0F), x);
  const auto t = S::fma(bounded, S::set1(0x1.715476p+0F), S::set1(kRoundMagic));
  const auto n = S::sub(t, S::set1(kRoundMagic));
  auto r = S::fma(n, S::set1(-0x1.62e4p-1F), bounded);  // ln 2 in two parts: the first has 15 bits,
  r = S::fma(n, S::set1(-0x1.7f7d1cp-20F), r);          // so n times it is exact
  auto p = S::set1(0x1.6d7540p-10F);
  p = S::fma(p, r, S::set1(0x1.126fb4p-7F));
  p = S::fma(p, r, S::set1(0x1.5554acp-5F));
  p = S::fma(p, r, S::set1(0x1.555404p-3F));
  p = S::fma(p, r, S::set1(0.5F));
  p = S::fma(p, r, S::set1(1.0F));
  p = S::fma(p, r, S::set1(1.0F));
  return S::zero_below(x, S::set1(-87.0F), S::mul(p, S::pow2(t)));
}

template <class S>
typename S::F sigmoid_lanes(typename S::F x) {
  const auto one = S::set1(1.0F);
  return S::div(one, S::add(one, exp_lanes<S>(S::sub(S::set1(0.0F), x))));
}

template <class S>
void exp_span(float* y, const float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const std::int64_t count = n - i < kLanes ? n - i : kLanes;
    Tail<S, float> block(x + i, count);
    S::store(block.v, exp_lanes<S>(S::load(block.v)));
    block.copy_to(y + i, count);
  }
}

// Adds 16 lanes pairwise: the upper half onto the lower half, four times.
template <class S>
double fold(const double* lanes) {
  double v[16];
  for (int i = 0; i < 16; ++i) v[i] = lanes[i];
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) v[i] += v[i + half];
  }
  return v[0];
}

// Vectors alternate between two sets of 16 lanes. One set would wait for the latency of its own
// additions, which for 16-bit elements is slower than memory.
template <class S>
double sum_squares_block(const void* x, DType dtype, std::int64_t n) {
  double even[16];
  double odd[16];
  with_dtype<S>(dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const T* in = static_cast<const T*>(x);
    auto acc = S::dzero();
    auto other = S::dzero();
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
      acc = S::dadd_square(acc, S::load(in + i));
      other = S::dadd_square(other, S::load(in + i + kLanes));
    }
    if (i + kLanes <= n) {
      acc = S::dadd_square(acc, S::load(in + i));
      i += kLanes;
    }
    if (i < n) other = S::dadd_square(other, S::load(Tail<S, T>(in + i, n - i).v));
    S::dstore(even, acc);
    S::dstore(odd, other);
  });
  for (int i = 0; i < 16; ++i) even[i] += odd[i];
  return fold<S>(even);
}

template <class S, class Word>
std::int64_t first_with_exponent(const Word* x, std::int64_t n, Word exponent) {
  constexpr std::int64_t kBlock = 512;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t end = n - begin < kBlock ? n : begin + kBlock;
    Word found = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      found = static_cast<Word>(found | ((x[i] & exponent) == exponent ? 1 : 0));
    }
    if (found == 0) continue;
    for (std::int64_t i = begin; i < end; ++i) {
      if ((x[i] & exponent) == exponent) return i;
    }
  }
  return n;
}

template <class S>
std::int64_t first_non_finite(const void* x, DType dtype, std::int64_t n) {
  if (dtype == DType::kFloat32) {
    return first_with_exponent<S>(static_cast<const std::uint32_t*>(x), n,
                                  std::uint32_t{0x7f800000U});
  }
  const std::uint16_t exponent = dtype == DType::kBFloat16 ? 0x7f80U : 0x7c00U;
  return first_with_exponent<S>(static_cast<const std::uint16_t*>(x), n, exponent);
}

// May ignore a NaN; row_exp_sum then returns a NaN.
template <class S>
float row_max(const float* x, std::int64_t n) {
  constexpr float kLowest = -__builtin_huge_valf();
  auto best = S::set1(kLowest);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) best = S::max(best, S::load(x + i));
  float lanes[16];
  S::store(lanes, best);
  for (; i < n; ++i) lanes[i % kLanes] = lanes[i % kLanes] > x[i] ? lanes[i % kLanes] : x[i];
  float result = kLowest;
  for (const float lane : lanes) result = lane > result ? lane : result;
  return result;
}

// Adds in fp32 within blocks of 512 elements (32 additions per lane), and the blocks in double.
template <class S>
double row_exp_sum(float* out, const float* x, std::int64_t n, float max) {
  constexpr std::int64_t kBlock = 512;
  const auto shift = S::set1(max);
  auto total = S::dzero();
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t end = n - begin < kBlock ? n : begin + kBlock;
    auto part = S::set1(0.0F);
    std::int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      const auto e = exp_lanes<S>(S::sub(S::load(x + i), shift));
      if (out != nullptr) S::store(out + i, e);
      part = S::add(part, e);
    }
    if (i < end) {
      Tail<S, float> tail(x + i, end - i);
      S::store(tail.v, exp_lanes<S>(S::sub(S::load(tail.v), shift)));
      if (out != nullptr) tail.copy_to(out + i, end - i);
      part = S::add(part, S::load(Tail<S, float>(tail.v, end - i).v));
    }
    total = S::dadd(total, part);
  }
  double lanes[16];
  S::dstore(lanes, total);
  return fold<S>(lanes);
}

// y = f(a, b), 16 lanes at a time.
template <class S, class T, class Fn>
void map2(T* y, const T* a, const T* b, std::int64_t n, Fn f) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) S::store(y + i, f(S::load(a + i), S::load(b + i)));
  if (i == n) return;
  Tail<S, T> x(a + i, n - i);
  const Tail<S, T> z(b + i, n - i);
  S::store(x.v, f(S::load(x.v), S::load(z.v)));
  x.copy_to(y + i, n - i);
}

inline constexpr float kSqrt8OverPi = 1.5957691216F;  // 2 sqrt(2/pi)
inline constexpr float kGeluCubic = 0.044715F;

// Bounds x to [-30, 30], so that x^3 cannot overflow. Beyond, the sigmoid is exactly 0 or 1.
template <class S>
typename S::F gelu_bounded(typename S::F x) {
  return S::max(S::set1(-30.0F), S::min(S::set1(30.0F), x));
}

template <class S>
typename S::F gelu_gate(typename S::F x) {
  const auto cubic = S::fma(S::mul(S::set1(kGeluCubic), x), x, S::set1(1.0F));
  return sigmoid_lanes<S>(S::mul(S::mul(S::set1(kSqrt8OverPi), x), cubic));
}

template <class S>
void gelu_forward(void* y, const void* x, DType dtype, std::int64_t n) {
  with_dtype<S>(dtype, [=](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const T* in = static_cast<const T*>(x);
    map2<S>(static_cast<T*>(y), in, in, n, [](typename S::F a, typename S::F) {
      return S::mul(a, gelu_gate<S>(gelu_bounded<S>(a)));
    });
  });
}

// d/dx x s(z(x)) = s + x s (1-s) z', z' = 2 sqrt(2/pi) (1 + 3 * 0.044715 x^2).
template <class S>
typename S::F gelu_slope(typename S::F bounded, typename S::F gate) {
  const auto square = S::fma(S::mul(S::set1(3 * kGeluCubic), bounded), bounded, S::set1(1.0F));
  const auto slope = S::mul(S::mul(S::set1(kSqrt8OverPi), bounded), square);
  const auto rest = S::mul(gate, S::sub(S::set1(1.0F), gate));
  return S::fma(slope, rest, gate);
}

// Processes 16 elements. Reads all inputs before it writes, so outputs may be input buffers.
template <class S, class T>
void gelu_gradient_lanes(T* dx, T* y, const T* x, const T* dy) {
  const auto a = S::load(x);
  const auto g = S::load(dy);
  const auto b = gelu_bounded<S>(a);
  const auto s = gelu_gate<S>(b);
  S::store(dx, S::mul(g, gelu_slope<S>(b, s)));
  if (y != nullptr) S::store(y, S::mul(a, s));
}

template <class S>
void gelu_backward(void* dx, void* y, const void* x, const void* dy, DType dtype, std::int64_t n) {
  with_dtype<S>(dtype, [=](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    T* d = static_cast<T*>(dx);
    T* out = static_cast<T*>(y);
    const T* a = static_cast<const T*>(x);
    const T* g = static_cast<const T*>(dy);
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      gelu_gradient_lanes<S>(d + i, out == nullptr ? nullptr : out + i, a + i, g + i);
    }
    if (i == n) return;
    Tail<S, T> tail_a(a + i, n - i);
    Tail<S, T> tail_g(g + i, n - i);
    gelu_gradient_lanes<S>(tail_a.v, tail_g.v, tail_a.v, tail_g.v);
    tail_a.copy_to(d + i, n - i);
    if (out != nullptr) tail_g.copy_to(out + i, n - i);
  });
}

template <class S>
void swiglu_forward(void* y, const void* gate, const void* up, DType dtype, std::int64_t n) {
  with_dtype<S>(dtype, [=](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    map2<S>(
        static_cast<T*>(y), static_cast<const T*>(gate), static_cast<const T*>(up), n,
        [](typename S::F a, typename S::F b) { return S::mul(S::mul(a, sigmoid_lanes<S>(a)), b); });
  });
}

// Processes 16 elements. Reads all inputs before it writes, so outputs may be input buffers.
template <class S, class T>
void swiglu_gradient_lanes(T* d_gate, T* d_up, T* y, const T* gate, const T* up, const T* dy) {
  const auto a = S::load(gate);
  const auto b = S::load(up);
  const auto g = S::load(dy);
  const auto s = sigmoid_lanes<S>(a);
  const auto slope = S::fma(a, S::sub(S::set1(1.0F), s), S::set1(1.0F));
  const auto active = S::mul(a, s);
  S::store(d_gate, S::mul(S::mul(g, b), S::mul(s, slope)));
  S::store(d_up, S::mul(g, active));
  if (y != nullptr) S::store(y, S::mul(active, b));
}

template <class S>
void swiglu_backward(const SwigluGradient& to, const void* gate, const void* up, const void* dy,
                     DType dtype, std::int64_t n) {
  with_dtype<S>(dtype, [=](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    T* da = static_cast<T*>(to.d_gate);
    T* db = static_cast<T*>(to.d_up);
    T* out = static_cast<T*>(to.y);
    const T* a = static_cast<const T*>(gate);
    const T* b = static_cast<const T*>(up);
    const T* g = static_cast<const T*>(dy);
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      swiglu_gradient_lanes<S>(da + i, db + i, out == nullptr ? nullptr : out + i, a + i, b + i,
                               g + i);
    }
    if (i == n) return;
    Tail<S, T> tail_a(a + i, n - i);
    Tail<S, T> tail_b(b + i, n - i);
    Tail<S, T> tail_g(g + i, n - i);
    swiglu_gradient_lanes<S>(tail_a.v, tail_b.v, tail_g.v, tail_a.v, tail_b.v, tail_g.v);
    tail_a.copy_to(da + i, n - i);
    tail_b.copy_to(db + i, n - i);
    if (out != nullptr) tail_g.copy_to(out + i, n - i);
  });
}

}  // namespace sluice::isa
