// LayerNorm and RMSNorm of one row by one warp: forward and gradient by the input. Statistics are
// fp32 sums: a lane adds its packs in order, then the lanes meet in a butterfly. Whether the warp
// holds the row (row_packs.hpp) changes no bit.
#pragma once

#include "kernels/cuda/block_args.hpp"
#include "kernels/cuda/row_packs.hpp"

namespace sluice::cuda {

// Sum of f(place) over the packs of a row.
template <class T, int kPacks, class Fn>
SLUICE_BODY Two row_sum(const Warp& warp, std::int64_t hidden, Fn f) {
  return warp.sum([&](int lane) {
    Two sum;
    for_lane_packs<T, kPacks>(lane, hidden, [&](const PackPlace& at) {
      const Two part = f(at);
      sum.a += part.a;
      sum.b += part.b;
    });
    return sum;
  });
}

template <class T, int kPacks>
SLUICE_BODY float row_mean(const Warp& warp, const WarpRow<T, kPacks>& x, std::int64_t hidden) {
  const Two sum = row_sum<T, kPacks>(warp, hidden, [&](const PackPlace& at) {
    const Pack<T> pack = x.pack(at);
    Two part;
    for (int j = 0; j < Pack<T>::kSize; ++j) part.a += pack.v[j];
    return part;
  });
  return quotient(sum.a, static_cast<float>(hidden));
}

// 1 / sqrt(mean of (x - center)^2 + eps).
template <class T, int kPacks>
SLUICE_BODY float row_rstd(const Warp& warp, const LayerNormArgs& a, const WarpRow<T, kPacks>& x,
                           float center) {
  const Two sum = row_sum<T, kPacks>(warp, a.hidden, [&](const PackPlace& at) {
    const Pack<T> pack = x.pack(at);
    Two part;
    for (int j = 0; j < Pack<T>::kSize; ++j) {
      const float deviation = j < at.n ? pack.v[j] - center : 0.0F;
      part.a = fma32(deviation, deviation, part.a);
    }
    return part;
  });
  const float variance = quotient(sum.a, static_cast<float>(a.hidden));
  return quotient(1.0F, root(variance + static_cast<float>(a.eps)));
}

// Of the loaded row x.
template <class T, bool kCentered, int kPacks>
SLUICE_BODY void norm_row(const NormRows& rows, WarpRow<T, kPacks>& x, void* out, std::int64_t row,
                          const Warp& warp, bool aligned) {
  const LayerNormArgs& a = rows.at;
  const T* weight = static_cast<const T*>(a.weight);
  const T* bias = static_cast<const T*>(a.bias);
  T* y = static_cast<T*>(out) + row * a.hidden;
  const bool whole = kPacks > 0 || aligned;
  const float mean = kCentered ? row_mean(warp, x, a.hidden) : 0.0F;
  x.narrow_again();
  const float rstd = row_rstd(warp, a, x, mean);
  x.narrow_again();
  warp.each_largest(rows.row_maxima, row, [&](int lane) {
    Largest<T> most;
    for_lane_packs<T, kPacks>(lane, a.hidden, [&](const PackPlace& at) {
      Pack<T> pack = x.pack(at);
      const Pack<T> w = load_pack(weight + at.i, at.n, whole);
      if (kCentered) {
        const Pack<T> b = load_pack(bias + at.i, at.n, whole);
        for (int j = 0; j < Pack<T>::kSize; ++j) {
          pack.v[j] = fma32((pack.v[j] - mean) * rstd, w.v[j], b.v[j]);
        }
      } else {
        for (int j = 0; j < Pack<T>::kSize; ++j) pack.v[j] = pack.v[j] * rstd * w.v[j];
      }
      store_pack(y + at.i, pack, at.n, whole);
      if (rows.row_maxima != nullptr) most.add(pack);
    });
    if (lane == 0 && kCentered && a.mean != nullptr) a.mean[row] = mean;
    if (lane == 0 && a.rstd != nullptr) a.rstd[row] = rstd;
    return most.stored();
  });
}

template <class T, bool kCentered, int kPacks>
SLUICE_BODY void norm_forward_body(const NormRows& rows, void* y, std::int64_t row,
                                   const Warp& warp, bool aligned) {
  const LayerNormArgs& a = rows.at;
  WarpRow<T, kPacks> x;
  x.load(warp, static_cast<const T*>(a.x) + row * a.hidden, a.hidden, aligned);
  norm_row<T, kCentered>(rows, x, y, row, warp, aligned);
}

// z = (x - mean) rstd and g = dy weight of one pack; beyond the row both products with g are 0.
template <class T>
struct NormPack {
  Pack<T> z, g;
};
template <class T, int kPacks>
SLUICE_BODY NormPack<T> norm_pack(const WarpRow<T, kPacks>& x, const WarpRow<T, kPacks>& dy,
                                  const Pack<T>& weight, const PackPlace& at, float mean,
                                  float rstd) {
  NormPack<T> p{x.pack(at), dy.pack(at)};
  for (int j = 0; j < Pack<T>::kSize; ++j) {
    p.z.v[j] = (p.z.v[j] - mean) * rstd;
    p.g.v[j] = p.g.v[j] * weight.v[j];
  }
  return p;
}

// LayerNorm: dx = rstd (g - mean(g) - z mean(g z)); RMSNorm has no mean(g).
template <class T, bool kCentered, int kPacks>
SLUICE_BODY void norm_input_body(const LayerNormArgs& a, const NormInputGradient& to,
                                 std::int64_t row, const Warp& warp, bool aligned) {
  const std::int64_t first = row * a.hidden;
  const bool whole = kPacks > 0 || aligned;
  WarpRow<T, kPacks> x, dy, residual;
  x.load(warp, static_cast<const T*>(a.x) + first, a.hidden, aligned);
  dy.load(warp, static_cast<const T*>(to.dy) + first, a.hidden, aligned);
  if (to.residual != nullptr) {
    residual.load(warp, static_cast<const T*>(to.residual) + first, a.hidden, aligned);
  }
  const float mean = kCentered ? a.mean[row] : 0.0F;
  const float rstd = a.rstd[row];
  const auto pack = [&](const PackPlace& at) {
    const Pack<T> w = load_pack(static_cast<const T*>(a.weight) + at.i, at.n, whole);
    return norm_pack(x, dy, w, at, mean, rstd);
  };
  const Two sum = row_sum<T, kPacks>(warp, a.hidden, [&](const PackPlace& at) {
    const NormPack<T> p = pack(at);
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
  x.narrow_again();
  dy.narrow_again();
  warp.each([&](int lane) {
    for_lane_packs<T, kPacks>(lane, a.hidden, [&](const PackPlace& at) {
      const NormPack<T> p = pack(at);
      Pack<T> sum_of{};
      if (to.residual != nullptr) sum_of = residual.pack(at);
      for (int j = 0; j < Pack<T>::kSize; ++j) {
        const float inner = fma32(p.z.v[j], minus_mean_gz, p.g.v[j] - mean_g);
        sum_of.v[j] = fma32(rstd, inner, sum_of.v[j]);
      }
      store_pack(static_cast<T*>(to.dx) + first + at.i, sum_of, at.n, whole);
    });
  });
}

}  // namespace sluice::cuda
