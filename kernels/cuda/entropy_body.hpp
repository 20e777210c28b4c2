// Softmax cross entropy of one row of fp32 logits by one warp: one pass for maximum and sum of
// exponentials, one that puts the gradient in the place of the logits.
#pragma once

#include <type_traits>

#include "kernels/cuda/activation_body.hpp"
#include "kernels/cuda/warp.hpp"

namespace sluice::cuda {

// Maximum of some logits, and the sum of exp(logit - maximum).
struct MaxSum {
  float max = -__builtin_huge_valf();
  float sum = 0;
};

SLUICE_BODY float scaled_to(const MaxSum& part, float max) {
  return part.max == max ? part.sum : part.sum * exp32(part.max - max);
}

// Symmetric, as Warp::reduce wants.
struct MergeMaxSum {
  SLUICE_BODY MaxSum operator()(const MaxSum& a, const MaxSum& b) const {
    const float max = a.max > b.max ? a.max : b.max;
    return {max, scaled_to(a, max) + scaled_to(b, max)};
  }
};

// A NaN among the logits may be no maximum; it is in the sum.
SLUICE_BODY MaxSum with_pack(const MaxSum& before, const Pack<float>& x, std::int64_t n) {
  constexpr int kSize = Pack<float>::kSize;
  float max = before.max;
  for (int j = 0; j < kSize; ++j) max = j < n && x.v[j] > max ? x.v[j] : max;
  float sum = scaled_to(before, max);
  for (int j = 0; j < kSize; ++j) {
    if (j < n) sum += x.v[j] == max ? 1.0F : exp32(x.v[j] - max);
  }
  return {max, sum};
}

// Four elements of T in memory, on a multiple of their size.
template <class T>
struct alignas(4 * sizeof(T)) Quad {
  T v[Pack<float>::kCount];
};

template <class T>
SLUICE_BODY void store_quad(T* to, const Pack<float>& values, std::int64_t n) {
  constexpr int kSize = Pack<float>::kSize;
  if (n < kSize) {
    for (int j = 0; j < kSize; ++j) {
      if (j < n) narrow(values.v[j], to + j);
    }
    return;
  }
  Quad<T> quad;
  for (int j = 0; j < kSize; ++j) narrow(values.v[j], &quad.v[j]);
#ifdef SLUICE_DEVICE_CODE
  using Words = std::conditional_t<sizeof(T) == 2, uint2, uint4>;
  Words words;
  memcpy(&words, &quad, sizeof quad);
  *reinterpret_cast<Words*>(to) = words;
#else
  std::memcpy(static_cast<void*>(to), &quad, sizeof quad);
#endif
}

SLUICE_BODY float scale_of(const EntropyArgs& a) {
  return a.scalars == nullptr ? a.scale : a.scalars->loss_factor;
}

// The beginning of a row's gradient, in the place of its logits.
template <class T>
SLUICE_BODY T* gradient_row(const EntropyArgs& a, std::int64_t row) {
  return reinterpret_cast<T*>(a.logits + row * a.row_stride);
}

// The gradient of a row with a target, (softmax - onehot) scale; p - 1 in double, because near p =
// 1 the fp32 difference has no correct digits. All lanes load their packs before a lane stores: a
// 16-bit gradient lies in the first half of its row, where other lanes' logits were.
template <class T>
SLUICE_BODY void entropy_gradient(const EntropyArgs& a, std::int64_t row, const MaxSum& all,
                                  const Warp& warp) {
  constexpr int kSize = Pack<float>::kSize;
  const float* x = a.logits + row * a.row_stride;
  T* to = gradient_row<T>(a, row);
  const std::int64_t target = a.targets[row] - a.slices.first;  // its column
  const float scale = scale_of(a);
  const float factor = quotient(scale, all.sum);
  for (std::int64_t begin = 0; begin < a.vocab; begin += std::int64_t{kWarp} * kSize) {
    const auto column = [begin](int lane) { return begin + std::int64_t{lane} * kSize; };
    warp.each_after(
        [&](int lane) { return load_pack(x + column(lane), a.vocab - column(lane), true); },
        [&](int lane, Pack<float> at) {
          for (int j = 0; j < kSize; ++j) {
            const float e = exp32(at.v[j] - all.max);
            at.v[j] = e * factor;
            if (column(lane) + j == target) {
              const double p = static_cast<double>(e) / static_cast<double>(all.sum);
              at.v[j] = static_cast<float>((p - 1.0) * static_cast<double>(scale));
            }
          }
          store_quad(to + column(lane), at, a.vocab - column(lane));
        });
  }
}

// Of the lane's packs of n logits, in order. A chunk of logits has too few rows for other warps to
// hide a load, so four are in flight.
SLUICE_BODY MaxSum max_sum_of_lane(const float* x, std::int64_t n, int lane) {
  constexpr int kAhead = 4, kSize = Pack<float>::kSize, kStep = kWarp * kSize;
  MaxSum part;
  std::int64_t i = std::int64_t{lane} * kSize;
  for (; i + (kAhead - 1) * kStep + kSize <= n; i += std::int64_t{kAhead} * kStep) {
    RawPack<float> next[kAhead];
    for (int j = 0; j < kAhead; ++j) load_raw(x + i + j * kStep, &next[j]);
    for (int j = 0; j < kAhead; ++j) part = with_pack(part, widen(next[j]), kSize);
  }
  for (; i < n; i += kStep) part = with_pack(part, load_pack(x + i, n - i, true), n - i);
  return part;
}

SLUICE_BODY MaxSum max_sum_of_columns(const EntropyArgs& a, std::int64_t row, const Warp& warp) {
  const float* x = a.logits + row * a.row_stride;
  return warp.reduce([&](int lane) { return max_sum_of_lane(x, a.vocab, lane); }, MergeMaxSum{});
}

// Maximum and sum of a row's words, and the logit of its target.
struct EntropyRow {
  MaxSum all;
  float target = 0;
};

SLUICE_BODY EntropyRow merged_parts(const EntropyArgs& a, std::int64_t row) {
  EntropyRow whole;
  for (int r = 0; r < a.slices.ranks; ++r) {
    const EntropyPart& part = a.slices.parts[r * a.rows + row];
    whole.all = MergeMaxSum{}(whole.all, {part.max, part.sum});
    whole.target += part.target;
  }
  return whole;
}

SLUICE_BODY EntropyRow whole_row(const EntropyArgs& a, std::int64_t row, const Warp& warp) {
  const bool sliced = a.slices.parts != nullptr;
  const std::int64_t target = a.targets[row];
  EntropyRow whole;
  if (sliced) {
    whole = merged_parts(a, row);
  } else {
    whole.all = max_sum_of_columns(a, row, warp);
  }
  if (target < 0 || target >= (sliced ? a.slices.words : a.vocab)) {
    whole.target = from_bits(0x7fc00000U);  // NaN
  } else if (!sliced) {
    whole.target = a.logits[row * a.row_stride + target];
  }
  return whole;
}

template <class T>
SLUICE_BODY void entropy_body(const EntropyArgs& a, std::int64_t row, const Warp& warp) {
  if (a.targets[row] == kNoTarget) {
    warp.each([&](int lane) {
      if (lane == 0) a.losses[row] = 0;
      for (std::int64_t i = lane; i < a.vocab && a.gradient; i += kWarp) {
        narrow(0.0F, gradient_row<T>(a, row) + i);
      }
    });
    return;
  }
  const EntropyRow whole = whole_row(a, row, warp);
  warp.each([&](int lane) {
    if (lane == 0) a.losses[row] = logarithm(whole.all.sum) + (whole.all.max - whole.target);
  });
  if (a.gradient) entropy_gradient<T>(a, row, whole.all, warp);
}

SLUICE_BODY void entropy_part_body(const EntropyArgs& a, std::int64_t row, const Warp& warp,
                                   EntropyPart* parts) {
  const std::int64_t column = a.targets[row] - a.slices.first;
  const MaxSum own = max_sum_of_columns(a, row, warp);
  const bool has_target = column >= 0 && column < a.vocab;
  warp.each([&](int lane) {
    if (lane != 0) return;
    parts[row] = {own.max, own.sum, has_target ? a.logits[row * a.row_stride + column] : 0.0F};
  });
}

}  // namespace sluice::cuda
