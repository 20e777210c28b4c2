// RMSNorm and rotary positions over one range, as templates over a back end S (simd_types.hpp).
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/isa/norm_impl.hpp"

namespace sluice::isa {

template <class S, class T>
void rms_norm_forward_row(const RmsNormArgs& a, const T* x, T* y, std::int64_t row) {
  const std::int64_t n = a.hidden;
  auto squares = S::dzero();
  for (std::int64_t i = 0; i < n; i += kLanes) {
    squares = S::dadd_square(squares, load_some<S>(x + i, n - i));
  }
  const double mean_square = fold_lanes<S>(squares) / static_cast<double>(n);
  const auto rstd = static_cast<float>(1.0 / std::sqrt(mean_square + a.eps));
  const auto factor = S::set1(rstd);
  const T* weight = static_cast<const T*>(a.weight);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const auto normal = S::mul(load_some<S>(x + i, n - i), factor);
    store_some<S>(y + i, S::mul(normal, load_some<S>(weight + i, n - i)), n - i);
  }
  if (a.rstd != nullptr) a.rstd[row] = rstd;
}

template <class S>
void rms_norm_forward(const RmsNormArgs& a, void* y, std::int64_t begin, std::int64_t end) {
  with_dtype<S>(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * a.hidden;
      rms_norm_forward_row<S>(a, static_cast<const T*>(a.x) + at, static_cast<T*>(y) + at, row);
    }
  });
}

// With z = x rstd and g = dy weight: dx = rstd (g - z mean(g z)).
template <class S, class T>
void rms_norm_input_row(const RmsNormArgs& a, T* dx, const T* dy, const T* residual,
                        std::int64_t row) {
  const std::int64_t n = a.hidden;
  const T* x = static_cast<const T*>(a.x) + row * n;
  const T* weight = static_cast<const T*>(a.weight);
  const auto rstd = S::set1(a.rstd[row]);
  auto sum_gz = S::dzero();
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const auto z = S::mul(load_some<S>(x + i, n - i), rstd);
    const auto g = S::mul(load_some<S>(dy + i, n - i), load_some<S>(weight + i, n - i));
    sum_gz = S::dadd(sum_gz, S::mul(g, z));
  }
  const auto minus_mean_gz =
      S::set1(static_cast<float>(-fold_lanes<S>(sum_gz) / static_cast<double>(n)));
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const auto z = S::mul(load_some<S>(x + i, n - i), rstd);
    const auto g = S::mul(load_some<S>(dy + i, n - i), load_some<S>(weight + i, n - i));
    const auto kept = residual == nullptr ? S::set1(0.0F) : load_some<S>(residual + i, n - i);
    store_some<S>(dx + i, S::fma(rstd, S::fma(z, minus_mean_gz, g), kept), n - i);
  }
}

template <class S>
void rms_norm_input_gradient(const RmsNormArgs& a, void* dx, const void* dy, const void* residual,
                             std::int64_t begin, std::int64_t end) {
  with_dtype<S>(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const T* base = static_cast<const T*>(residual);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * a.hidden;
      rms_norm_input_row<S>(a, static_cast<T*>(dx) + at, static_cast<const T*>(dy) + at,
                            base == nullptr ? base : base + at, row);
    }
  });
}

template <class S>
void rms_norm_weight_gradient(const RmsNormArgs& a, float* d_weight, const void* dy,
                              std::int64_t begin, std::int64_t end) {
  with_dtype<S>(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const T* x = static_cast<const T*>(a.x);
    const T* grad = static_cast<const T*>(dy);
    for_row_blocks<S>(a.rows, begin, end, [&](auto first, auto last, auto i, auto n) {
      auto part = S::set1(0.0F);
      for (std::int64_t row = first; row < last; ++row) {
        const auto z = S::mul(load_some<S>(x + row * a.hidden + i, n), S::set1(a.rstd[row]));
        part = S::fma(load_some<S>(grad + row * a.hidden + i, n), z, part);
      }
      add_lanes<S>(d_weight + i, part, n);
    });
  });
}

// Rotates the two halves of one head; `sign` -1 rotates in the opposite direction.
template <class S, class T>
void rope_head(T* x, const float* cos, const float* sin, std::int64_t half, float sign) {
  const auto direction = S::set1(sign);
  for (std::int64_t i = 0; i < half; i += kLanes) {
    const std::int64_t n = half - i;
    const auto c = load_some<S>(cos + i, n);
    const auto s = S::mul(load_some<S>(sin + i, n), direction);
    const auto a = load_some<S>(x + i, n);
    const auto b = load_some<S>(x + half + i, n);
    store_some<S>(x + i, S::sub(S::mul(a, c), S::mul(b, s)), n);
    store_some<S>(x + half + i, S::add(S::mul(b, c), S::mul(a, s)), n);
  }
}

template <class S>
void rope(const RopeArgs& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t half = a.head_dim / 2;
  const float sign = a.back ? -1.0F : 1.0F;
  with_dtype<S>(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t angles = row % a.seq * half;
      T* x = static_cast<T*>(a.x) + row * a.stride;
      for (std::int64_t head = 0; head < a.heads; ++head) {
        rope_head<S>(x + head * a.head_dim, a.cos + angles, a.sin + angles, half, sign);
      }
    }
  });
}

}  // namespace sluice::isa
