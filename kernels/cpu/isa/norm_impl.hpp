// LayerNorm, sums over rows and masked sums over one range, as templates over a back end S
// (simd_types.hpp).
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/isa/math_impl.hpp"

namespace sluice::isa {

// Loads up to 16 elements; the lanes beyond n are zero.
template <class S, class T>
typename S::F load_some(const T* from, std::int64_t n) {
  return n >= kLanes ? S::load(from) : S::load(Tail<S, T>(from, n).v);
}

template <class S, class T>
void store_some(T* to, typename S::F value, std::int64_t n) {
  if (n >= kLanes) return S::store(to, value);
  Tail<S, T> block;
  S::store(block.v, value);
  block.copy_to(to, n);
}

template <class S>
typename S::F zero_from(typename S::F value, std::int64_t n) {
  if (n >= kLanes) return value;
  float lanes[16];
  S::store(lanes, value);
  return S::load(Tail<S, float>(lanes, n).v);
}

template <class S>
double fold_lanes(typename S::D acc) {
  double lanes[16];
  S::dstore(lanes, acc);
  return fold<S>(lanes);
}

template <class S, class T>
void layer_norm_forward_row(const LayerNormArgs& a, const T* x, T* y, std::int64_t row) {
  const std::int64_t n = a.hidden;
  auto sum = S::dzero();
  for (std::int64_t i = 0; i < n; i += kLanes) sum = S::dadd(sum, load_some<S>(x + i, n - i));
  const auto mean = static_cast<float>(fold_lanes<S>(sum) / static_cast<double>(n));
  const auto center = S::set1(mean);
  auto squares = S::dzero();
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const auto deviation = S::sub(load_some<S>(x + i, n - i), center);
    squares = S::dadd_square(squares, zero_from<S>(deviation, n - i));
  }
  const double variance = fold_lanes<S>(squares) / static_cast<double>(n);
  const auto rstd = static_cast<float>(1.0 / std::sqrt(variance + a.eps));
  const auto factor = S::set1(rstd);
  const T* weight = static_cast<const T*>(a.weight);
  const T* bias = static_cast<const T*>(a.bias);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const auto normal = S::mul(S::sub(load_some<S>(x + i, n - i), center), factor);
    store_some<S>(y + i,
                  S::fma(normal, load_some<S>(weight + i, n - i), load_some<S>(bias + i, n - i)),
                  n - i);
  }
  if (a.mean != nullptr) a.mean[row] = mean;
  if (a.rstd != nullptr) a.rstd[row] = rstd;
}

template <class S>
void layer_norm_forward(const LayerNormArgs& a, void* y, std::int64_t begin, std::int64_t end) {
  with_dtype<S>(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * a.hidden;
      layer_norm_forward_row<S>(a, static_cast<const T*>(a.x) + at, static_cast<T*>(y) + at, row);
    }
  });
}

// With z = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - z mean(g z)).
template <class S, class T>
void layer_norm_input_row(const LayerNormArgs& a, T* dx, const T* dy, const T* residual,
                          std::int64_t row) {
  const std::int64_t n = a.hidden;
  const T* x = static_cast<const T*>(a.x) + row * n;
  const T* weight = static_cast<const T*>(a.weight);
  const auto mean = S::set1(a.mean[row]);
  const auto rstd = S::set1(a.rstd[row]);
  auto sum_g = S::dzero();
  auto sum_gz = S::dzero();
  for (std::int64_t i = 0; i < n; i += kLanes) {  // beyond n, g and its products are zero
    const auto z = S::mul(S::sub(load_some<S>(x + i, n - i), mean), rstd);
    const auto g = S::mul(load_some<S>(dy + i, n - i), load_some<S>(weight + i, n - i));
    sum_g = S::dadd(sum_g, g);
    sum_gz = S::dadd(sum_gz, S::mul(g, z));
  }
  const auto width = static_cast<double>(n);
  const auto mean_g = S::set1(static_cast<float>(fold_lanes<S>(sum_g) / width));
  const auto minus_mean_gz = S::set1(static_cast<float>(-fold_lanes<S>(sum_gz) / width));
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const auto z = S::mul(S::sub(load_some<S>(x + i, n - i), mean), rstd);
    const auto g = S::mul(load_some<S>(dy + i, n - i), load_some<S>(weight + i, n - i));
    const auto inner = S::fma(z, minus_mean_gz, S::sub(g, mean_g));
    const auto kept = residual == nullptr ? S::set1(0.0F) : load_some<S>(residual + i, n - i);
    store_some<S>(dx + i, S::fma(rstd, inner, kept), n - i);
  }
}

template <class S>
void layer_norm_input_gradient(const LayerNormArgs& a, void* dx, const void* dy,
                               const void* residual, std::int64_t begin, std::int64_t end) {
  with_dtype<S>(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const T* base = static_cast<const T*>(residual);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = row * a.hidden;
      layer_norm_input_row<S>(a, static_cast<T*>(dx) + at, static_cast<const T*>(dy) + at,
                              base == nullptr ? base : base + at, row);
    }
  });
}

// Calls f(first row, row after the last, first column, remaining columns) for each block of
// kSumRows rows and each 16 columns of [begin, end).
template <class S, class Fn>
void for_row_blocks(std::int64_t rows, std::int64_t begin, std::int64_t end, Fn f) {
  for (std::int64_t row = 0; row < rows; row += kSumRows) {
    const std::int64_t last = rows - row < kSumRows ? rows : row + kSumRows;
    for (std::int64_t i = begin; i < end; i += kLanes) f(row, last, i, end - i);
  }
}

template <class S>
void add_lanes(float* total, typename S::F part, std::int64_t n) {
  store_some<S>(total, S::add(load_some<S>(total, n), part), n);
}

template <class S>
void layer_norm_weight_gradient(const LayerNormArgs& a, float* d_weight, float* d_bias,
                                const void* dy, std::int64_t begin, std::int64_t end) {
  with_dtype<S>(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const T* x = static_cast<const T*>(a.x);
    const T* grad = static_cast<const T*>(dy);
    for_row_blocks<S>(a.rows, begin, end, [&](auto first, auto last, auto i, auto n) {
      auto weight_part = S::set1(0.0F);
      auto bias_part = S::set1(0.0F);
      for (std::int64_t row = first; row < last; ++row) {
        const auto g = load_some<S>(grad + row * a.hidden + i, n);
        const auto centered = S::sub(load_some<S>(x + row * a.hidden + i, n), S::set1(a.mean[row]));
        weight_part = S::fma(g, S::mul(centered, S::set1(a.rstd[row])), weight_part);
        bias_part = S::add(bias_part, g);
      }
      add_lanes<S>(d_weight + i, weight_part, n);
      add_lanes<S>(d_bias + i, bias_part, n);
    });
  });
}

template <class S>
void column_sum(const ColumnSumArgs& a, std::int64_t begin, std::int64_t end) {
  with_dtype<S>(a.dtype, [&](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const T* x = static_cast<const T*>(a.x);
    for_row_blocks<S>(a.rows, begin, end, [&](auto first, auto last, auto i, auto n) {
      auto part = S::set1(0.0F);
      for (std::int64_t row = first; row < last; ++row) {
        part = S::add(part, load_some<S>(x + row * a.columns + i, n));
      }
      add_lanes<S>(a.total + i, part, n);
    });
  });
}

template <class S>
void softmax_gradient_row(float* grad, const float* weights, std::int64_t n, float scale) {
  auto sum = S::dzero();
  for (std::int64_t i = 0; i < n; i += kLanes) {
    sum = S::dadd(sum, S::mul(load_some<S>(weights + i, n - i), load_some<S>(grad + i, n - i)));
  }
  const auto mean = S::set1(static_cast<float>(fold_lanes<S>(sum)));
  const auto factor = S::set1(scale);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const auto w = S::mul(load_some<S>(weights + i, n - i), factor);
    store_some<S>(grad + i, S::mul(w, S::sub(load_some<S>(grad + i, n - i), mean)), n - i);
  }
}

// out = residual + x * factor; product and sum are fp32; `residual` may be null.
template <class S>
void multiply_add(void* out, const void* x, const float* factor, const void* residual, DType dtype,
                  std::int64_t n) {
  with_dtype<S>(dtype, [=](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const T* in = static_cast<const T*>(x);
    const T* base = static_cast<const T*>(residual);
    for (std::int64_t i = 0; i < n; i += kLanes) {
      auto value = S::mul(load_some<S>(in + i, n - i), load_some<S>(factor + i, n - i));
      if (base != nullptr) value = S::add(load_some<S>(base + i, n - i), value);
      store_some<S>(static_cast<T*>(out) + i, value, n - i);
    }
  });
}

}  // namespace sluice::isa
