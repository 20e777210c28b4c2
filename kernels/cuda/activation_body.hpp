// GELU and SwiGLU of one thread's packs, with the bits of kernels/cpu (isa/math_impl.hpp).
#pragma once

#include "kernels/cuda/block_args.hpp"
#include "kernels/cuda/column_body.hpp"
#include "kernels/cuda/elements.hpp"

namespace sluice::cuda {

// exp(x) = mantissa * 2^power; the power is the low bits of the integer.
struct ReducedExp {
  float mantissa;
  std::uint32_t power;
};
SLUICE_BODY ReducedExp reduced_exp(float x) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: rounds to an integer
  const float t = fma32(x, 0x1.715476p+0F, kMagic);
  const float n = t - kMagic;
  float r = fma32(n, -0x1.62e4p-1F, x);
  r = fma32(n, -0x1.7f7d1cp-20F, r);
  float p = 0x1.6d7540p-10F;
  p = fma32(p, r, 0x1.126fb4p-7F);
  p = fma32(p, r, 0x1.5554acp-5F);
  p = fma32(p, r, 0x1.555404p-3F);
  p = fma32(p, r, 0.5F);
  p = fma32(p, r, 1.0F);
  p = fma32(p, r, 1.0F);
  return {p, bits_of(t)};
}

// exp_lanes of the CPU.
SLUICE_BODY float exp32(float x) {
  const ReducedExp of = reduced_exp(89.0F < x ? 89.0F : x);
  return x < -87.0F ? 0.0F : of.mantissa * from_bits((of.power + 127U) << 23);
}

// exp32(-x) for |x| <= kPlainExp. There the power of two keeps the result normal, so the product
// with it is an addition to the exponent.
constexpr float kPlainExp = 86.0F;
SLUICE_BODY float plain_exp_of_negative(float x) {
  const ReducedExp of = reduced_exp(-x);
  return from_bits(bits_of(of.mantissa) + (of.power << 23));
}

// True if no element is NaN or above `most` in magnitude.
template <class T>
SLUICE_BODY bool all_within(const Pack<T>& x, float most) {
  unsigned within = 1;
  for (const float v : x.v) within &= std::fabs(v) <= most ? 1U : 0U;
  return within != 0;
}

// 1 / (1 + exp(-x)), of any x or where |x| <= kPlainExp. A pack has one branch for its elements.
SLUICE_BODY float sigmoid32(float x) { return quotient(1.0F, 1.0F + exp32(0.0F - x)); }
SLUICE_BODY float plain_sigmoid(float x) {
  return reciprocal_in_range(1.0F + plain_exp_of_negative(x));
}

template <class T>
SLUICE_BODY Pack<T> sigmoid(Pack<T> x) {
  if (all_within(x, kPlainExp)) {
    for (float& v : x.v) v = plain_sigmoid(v);
  } else {
    for (float& v : x.v) v = sigmoid32(v);
  }
  return x;
}

SLUICE_BODY float gelu_bounded(float x) {
  const float below = 30.0F < x ? 30.0F : x;
  return -30.0F > below ? -30.0F : below;
}

constexpr float kGeluScale = 1.5957691216F;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715F;

SLUICE_BODY float gelu_argument(float b) { return kGeluScale * b * fma32(kCubic * b, b, 1.0F); }

// Within it bounds change no element, and the sigmoid's arguments are within kPlainExp.
constexpr float kPlainGelu = 9.0F;

// The sigmoid that GELU multiplies with. Bounds the elements of the pack.
template <class T>
SLUICE_BODY Pack<T> gelu_gate(Pack<T>* x) {
  Pack<T> gate;
  if (all_within(*x, kPlainGelu)) {
    for (int j = 0; j < Pack<T>::kSize; ++j) gate.v[j] = plain_sigmoid(gelu_argument(x->v[j]));
  } else {
    for (int j = 0; j < Pack<T>::kSize; ++j) {
      x->v[j] = gelu_bounded(x->v[j]);
      gate.v[j] = sigmoid32(gelu_argument(x->v[j]));
    }
  }
  return gate;
}

SLUICE_BODY float gelu_slope(float b, float gate) {
  const float square = fma32(3 * kCubic * b, b, 1.0F);
  return fma32(kGeluScale * b * square, gate * (1.0F - gate), gate);
}

// Does nothing with a pack that a body has stored.
struct Unmeasured {
  template <class P>
  SLUICE_BODY void operator()(const P&) const {}
};

// One row. The body calls stored(pack) for each pack of results.
template <class T, class Fn = Unmeasured>
SLUICE_BODY void gelu_body(const GeluArgs& a, std::int64_t row, const Worker& worker, bool aligned,
                           Fn stored = {}) {
  const T* x = static_cast<const T*>(a.x) + row * a.width;
  T* y = static_cast<T*>(a.y) + row * a.width;
  for_packs<T>(a.width, worker, aligned, [&](std::int64_t i, std::int64_t n, bool aligned) {
    Pack<T> at = load_pack(x + i, n, aligned);
    Pack<T> bounded = at;
    const Pack<T> gate = gelu_gate(&bounded);
    for (int j = 0; j < Pack<T>::kSize; ++j) at.v[j] *= gate.v[j];
    store_pack(y + i, at, n, aligned);
    stored(at);
  });
}

// The packs of x and dy become those of y and dx.
template <class T>
SLUICE_BODY void gelu_gradient(Pack<T>* x, Pack<T>* dy) {
  Pack<T> bounded = *x;
  const Pack<T> gate = gelu_gate(&bounded);
  for (int j = 0; j < Pack<T>::kSize; ++j) {
    dy->v[j] *= gelu_slope(bounded.v[j], gate.v[j]);
    x->v[j] *= gate.v[j];
  }
}

// One row. The body calls stored(pack) for each pack of dx.
template <class T, class Fn = Unmeasured>
SLUICE_BODY void gelu_gradient_body(const GeluGradient& a, std::int64_t row, const Worker& worker,
                                    bool aligned, Fn stored = {}) {
  const std::int64_t begin = row * a.width;
  for_packs<T>(a.width, worker, aligned, [&](std::int64_t i, std::int64_t n, bool aligned) {
    Pack<T> x = load_pack(static_cast<const T*>(a.x) + begin + i, n, aligned);
    Pack<T> dy = load_pack(static_cast<const T*>(a.dy) + begin + i, n, aligned);
    gelu_gradient(&x, &dy);
    store_pack(static_cast<T*>(a.dx) + begin + i, dy, n, aligned);
    stored(dy);
    if (a.y != nullptr) store_pack(static_cast<T*>(a.y) + begin + i, x, n, aligned);
  });
}

// The rows of one part, and the part of the sums of dx (column_body.hpp).
template <class T>
SLUICE_BODY void gelu_gradient_parts_body(const GeluGradient& a, std::int64_t block,
                                          const Worker& worker, bool aligned) {
  // Fewer than a sum alone has in flight: the arithmetic of a pack takes registers too.
  constexpr std::int64_t kLoads = 4;
  const PartRows rows = PartRows::of(block, a.rows);
  for_packs<T>(a.width, worker, aligned, [&](std::int64_t i, std::int64_t n, bool aligned) {
    float sum[Pack<T>::kCount] = {};
    const T* const from[] = {static_cast<const T*>(a.x) + i, static_cast<const T*>(a.dy) + i};
    for_rows<kLoads>(rows, from, a.width, n, aligned, [&](std::int64_t row, RowPacks<T, 2> packs) {
      Pack<T>&x = packs.of[0], &dy = packs.of[1];
      const std::int64_t at = row * a.width + i;
      gelu_gradient(&x, &dy);
      store_pack(static_cast<T*>(a.dx) + at, dy, n, aligned);
      if (a.y != nullptr) store_pack(static_cast<T*>(a.y) + at, x, n, aligned);
      const Pack<T> stored = widen(narrow(dy));
      for (int j = 0; j < Pack<T>::kSize; ++j) sum[j] += stored.v[j];
    });
    store_parts<T>(a.parts + block * a.width + i, sum, n);
  });
}

// As gelu_body.
template <class T, class Fn = Unmeasured>
SLUICE_BODY void swiglu_body(const SwigluArgs& a, std::int64_t row, const Worker& worker,
                             bool aligned, Fn stored = {}) {
  const T* gate = static_cast<const T*>(a.gate_up) + row * 2 * a.width;
  const T* up = gate + a.width;
  T* y = static_cast<T*>(a.y) + row * a.width;
  for_packs<T>(a.width, worker, aligned, [&](std::int64_t i, std::int64_t n, bool aligned) {
    Pack<T> g = load_pack(gate + i, n, aligned);
    const Pack<T> u = load_pack(up + i, n, aligned);
    const Pack<T> s = sigmoid(g);
    for (int j = 0; j < Pack<T>::kSize; ++j) g.v[j] = g.v[j] * s.v[j] * u.v[j];
    store_pack(y + i, g, n, aligned);
    stored(g);
  });
}

// As gelu_gradient_body.
template <class T, class Fn = Unmeasured>
SLUICE_BODY void swiglu_gradient_body(const SwigluGradient& a, std::int64_t row,
                                      const Worker& worker, bool aligned, Fn stored = {}) {
  const T* gate = static_cast<const T*>(a.gate_up) + row * 2 * a.width;
  T* d_gate = static_cast<T*>(a.d_gate_up) + row * 2 * a.width;
  const T* dy = static_cast<const T*>(a.dy) + row * a.width;
  for_packs<T>(a.width, worker, aligned, [&](std::int64_t i, std::int64_t n, bool aligned) {
    Pack<T> g = load_pack(gate + i, n, aligned);
    Pack<T> u = load_pack(gate + a.width + i, n, aligned);
    Pack<T> d = load_pack(dy + i, n, aligned);
    const Pack<T> gate_sigmoid = sigmoid(g);
    for (int j = 0; j < Pack<T>::kSize; ++j) {
      const float s = gate_sigmoid.v[j];
      const float slope = fma32(g.v[j], 1.0F - s, 1.0F);
      const float active = g.v[j] * s;
      const float of_up = d.v[j] * active;
      g.v[j] = d.v[j] * u.v[j] * (s * slope);
      d.v[j] = active * u.v[j];
      u.v[j] = of_up;
    }
    store_pack(d_gate + i, g, n, aligned);
    store_pack(d_gate + a.width + i, u, n, aligned);
    stored(g);
    stored(u);
    if (a.y != nullptr) store_pack(static_cast<T*>(a.y) + row * a.width + i, d, n, aligned);
  });
}

}  // namespace sluice::cuda
