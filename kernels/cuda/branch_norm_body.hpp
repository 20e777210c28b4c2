// The end of a branch and the norm of its result, of one row by one warp.
#pragma once

#include "kernels/cuda/branch_body.hpp"
#include "kernels/cuda/norm_body.hpp"

namespace sluice::cuda {

// As lane_packs(). With dropout, also 0 if rows do not begin at blocks of the mask's stream, or if
// a row lies in two samples.
inline std::int64_t branch_lane_packs(const BranchArgs& a, bool aligned) {
  const MaskPlace& m = a.mask;
  const bool whole = m.per_sample % a.columns == 0 && m.first % a.columns == 0 && m.offset % 4 == 0;
  return lane_packs(a.columns, a.dtype, aligned && (m.threshold == 0 || whole));
}

// The lane's mask: bit k * kSize + j is 1 if the mask keeps element j of the lane's k-th pack.
template <class T>
SLUICE_BODY std::uint64_t kept_elements(const BranchArgs& a, std::int64_t row, int lane) {
  const StreamPlace first = stream_place(a.mask, row * a.columns);
  std::uint64_t kept = 0;
  int bit = 0;
  for_packs<T>(a.columns, {lane, kWarp}, [&](std::int64_t i, std::int64_t) {
    for (int j = 0; j < Pack<T>::kSize; j += 4) {
      const auto block = static_cast<std::uint64_t>(first.element + i + j) / 4;
      const MaskWords x = mask_words(a.mask, first.stream, block);
      std::uint32_t four = 0;
      for (int k = 0; k < 4; ++k) {
        four |= static_cast<std::uint32_t>(x.of[k] >= a.mask.threshold) << k;
      }
      kept |= static_cast<std::uint64_t>(four) << bit;
      bit += 4;
    }
  });
  return kept;
}

// branch_body for a row that the warp holds in registers. `x` then holds the result, rounded as in
// memory. The masks are computed while the loads are in flight.
template <class T, int kPacks>
SLUICE_BODY void branch_row(const BranchArgs& a, std::int64_t row, const Warp& warp,
                            WarpRow<T, kPacks>& x) {
  static_assert(kPacks * Pack<T>::kSize <= 64);
  const std::int64_t first = row * a.columns;
  const bool dropped = a.mask.threshold > 0;
  WarpRow<T, kPacks> residual;
  x.load(warp, static_cast<const T*>(a.x) + first, a.columns, true);
  if (a.residual != nullptr) {
    residual.load(warp, static_cast<const T*>(a.residual) + first, a.columns, true);
  }
  warp.each([&](int lane) {
    const std::uint64_t kept = dropped ? kept_elements<T>(a, row, lane) : 0;
    for_lane_packs<T, kPacks>(lane, a.columns, [&](const PackPlace& at) {
      constexpr int kSize = Pack<T>::kSize;
      Pack<T> value = x.pack(at);
      if (a.bias != nullptr) {
        const Pack<T> b = load_pack(static_cast<const T*>(a.bias) + at.i, kSize, true);
        for (int j = 0; j < kSize; ++j) value.v[j] += b.v[j];
      }
      if (dropped) {
        for (int j = 0; j < kSize; ++j) {
          value.v[j] *= (kept >> (at.k * kSize + j) & 1) != 0 ? a.mask.keep : 0.0F;
        }
      }
      if (a.residual != nullptr) {
        const Pack<T> r = residual.pack(at);
        for (int j = 0; j < kSize; ++j) value.v[j] = r.v[j] + value.v[j];
      }
      store_pack(static_cast<T*>(a.out) + first + at.i, value, kSize, true);
      x.round(at, value);
    });
  });
}

// The bits of branch_body, then norm_forward_body: norm.at.x is branch.out. A lane reads only what
// it wrote itself.
template <class T, bool kCentered, int kPacks>
SLUICE_BODY void branch_norm_body(const BranchArgs& branch, const NormRows& norm, void* y,
                                  std::int64_t row, const Warp& warp, bool aligned) {
  if constexpr (kPacks == 0) {
    warp.each([&](int lane) { branch_body<T>(branch, row, {lane, kWarp}, aligned); });
    norm_forward_body<T, kCentered, 0>(norm, y, row, warp, aligned);
  } else {
    WarpRow<T, kPacks> x;
    branch_row(branch, row, warp, x);
    norm_row<T, kCentered>(norm, x, y, row, warp, true);
  }
}

}  // namespace sluice::cuda
