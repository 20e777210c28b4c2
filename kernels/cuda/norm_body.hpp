// LayerNorm and RMSNorm of one row by one warp: forward and gradient by the input. Statistics are
// fp32 sums: a lane adds its packs in order, then the lanes meet in a butterfly.
#pragma once

#include "kernels/cuda/block_args.hpp"
#include "kernels/cuda/warp.hpp"

namespace sluice::cuda {

// Sum of f(pack) over the packs of a row; f gets the first element and the elements from there on.
template <class T, class Fn>
SLUICE_BODY Two row_sum(const Warp& warp, std::int64_t hidden, Fn f) {
  return warp.sum([&](int lane) {
    Two sum;
    for_packs<T>(hidden, {lane, kWarp}, [&](std::int64_t i, std::int64_t n) {
      const Two part = f(i, n);
      sum.a += part.a;
      sum.b += part.b;
    });
    return sum;
  });
}

template <class T>
SLUICE_BODY float row_mean(const Warp& warp, const T* x, std::int64_t hidden, bool aligned) {
  const Two sum = row_sum<T>(warp, hidden, [&](std::int64_t i, std::int64_t n) {
    const Pack<T> at = load_pack(x + i, n, aligned);
    Two part;
    for (int j = 0; j < Pack<T>::kSize; ++j) part.a += at.v[j];
    return part;
  });
  return quotient(sum.a, static_cast<float>(hidden));
}

// 1 / sqrt(mean of (x - center)^2 + eps).
template <class T>
SLUICE_BODY float row_rstd(const Warp& warp, const LayerNormArgs& a, const T* x, float center,
                           bool aligned) {
  const Two sum = row_sum<T>(warp, a.hidden, [&](std::int64_t i, std::int64_t n) {
    const Pack<T> at = load_pack(x + i, n, aligned);
    Two part;
    for (int j = 0; j < Pack<T>::kSize; ++j) {
      const float deviation = j < n ? at.v[j] - center : 0.0F;
      part.a = fma32(deviation, deviation, part.a);
    }
    return part;
  });
  const float variance = quotient(sum.a, static_cast<float>(a.hidden));
  return quotient(1.0F, root(variance + static_cast<float>(a.eps)));
}

template <class T, bool kCentered>
SLUICE_BODY void norm_forward_body(const NormRows& rows, void* out, std::int64_t row,
                                   const Warp& warp, bool aligned) {
  const LayerNormArgs& a = rows.at;
  const T* x = static_cast<const T*>(a.x) + row * a.hidden;
  const T* weight = static_cast<const T*>(a.weight);
  const T* bias = static_cast<const T*>(a.bias);
  T* y = static_cast<T*>(out) + row * a.hidden;
  const float mean = kCentered ? row_mean(warp, x, a.hidden, aligned) : 0.0F;
  const float rstd = row_rstd(warp, a, x, mean, aligned);
  warp.each_largest(rows.row_maxima, row, [&](int lane) {
    Largest<T> most;
    for_packs<T>(a.hidden, {lane, kWarp}, [&](std::int64_t i, std::int64_t n) {
      Pack<T> at = load_pack(x + i, n, aligned);
      const Pack<T> w = load_pack(weight + i, n, aligned);
      if (kCentered) {
        const Pack<T> b = load_pack(bias + i, n, aligned);
        for (int j = 0; j < Pack<T>::kSize; ++j) {
          at.v[j] = fma32((at.v[j] - mean) * rstd, w.v[j], b.v[j]);
        }
      } else {
        for (int j = 0; j < Pack<T>::kSize; ++j) at.v[j] = at.v[j] * rstd * w.v[j];
      }
      store_pack(y + i, at, n, aligned);
      if (rows.row_maxima != nullptr) most.add(at);
    });
    if (lane == 0 && kCentered && a.mean != nullptr) a.mean[row] = mean;
    if (lane == 0 && a.rstd != nullptr) a.rstd[row] = rstd;
    return most.stored();
  });
}

// z = (x - mean) rstd and g = dy weight of one pack; beyond n both products with g are 0.
template <class T>
struct NormPack {
  Pack<T> z, g;
};
template <class T>
SLUICE_BODY NormPack<T> norm_pack(const T* x, const T* dy, const T* weight, float mean, float rstd,
                                  std::int64_t n, bool aligned) {
  NormPack<T> p;
  p.z = load_pack(x, n, aligned);
  p.g = load_pack(dy, n, aligned);
  const Pack<T> w = load_pack(weight, n, aligned);
  for (int j = 0; j < Pack<T>::kSize; ++j) {
    p.z.v[j] = (p.z.v[j] - mean) * rstd;
    p.g.v[j] = p.g.v[j] * w.v[j];
  }
  return p;
}

// LayerNorm: dx = rstd (g - mean(g) - z mean(g z)); RMSNorm has no mean(g).
template <class T, bool kCentered>
SLUICE_BODY void norm_input_body(const LayerNormArgs& a, const NormInputGradient& to,
                                 std::int64_t row, const Warp& warp, bool aligned) {
  const std::int64_t at = row * a.hidden;
  const T* x = static_cast<const T*>(a.x) + at;
  const T* dy = static_cast<const T*>(to.dy) + at;
  const T* weight = static_cast<const T*>(a.weight);
  const float mean = kCentered ? a.mean[row] : 0.0F;
  const float rstd = a.rstd[row];
  const Two sum = row_sum<T>(warp, a.hidden, [&](std::int64_t i, std::int64_t n) {
    const NormPack<T> p = norm_pack(x + i, dy + i, weight + i, mean, rstd, n, aligned);
    Two part;
    for (int j = 0; j < Pack<T>::kSize; ++j) {
      part.a += p.g.v[j];
      part.b = fma32(p.g.v[j], p.z.v[j], part.b);
    }
    return part;
  });
  const auto width = static_cast<float>(a.hidden);
  const float mean_g = kCentered ? quotient(sum.a, width) : 0.0F;
  const float minus_mean_gz = quotient(-sum.b, width);
  warp.each([&](int lane) {
    for_packs<T>(a.hidden, {lane, kWarp}, [&](std::int64_t i, std::int64_t n) {
      const NormPack<T> p = norm_pack(x + i, dy + i, weight + i, mean, rstd, n, aligned);
      Pack<T> sum_of{};
      if (to.residual != nullptr) {
        sum_of = load_pack(static_cast<const T*>(to.residual) + at + i, n, aligned);
      }
      for (int j = 0; j < Pack<T>::kSize; ++j) {
        const float inner = fma32(p.z.v[j], minus_mean_gz, p.g.v[j] - mean_g);
        sum_of.v[j] = fma32(rstd, inner, sum_of.v[j]);
      }
      store_pack(static_cast<T*>(to.dx) + at + i, sum_of, n, aligned);
    });
  });
}

}  // namespace sluice::cuda
