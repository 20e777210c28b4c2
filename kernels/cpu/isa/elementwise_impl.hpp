// Casts and accumulation over one range, as templates over a back end S (simd_types.hpp).
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/dtype.hpp"
#include "kernels/cpu/isa/simd_types.hpp"

namespace sluice::isa {

// The last n < 16 elements of a buffer, padded to 16, so that they pass through the same
// instructions as all other elements.
template <class S, class T>
struct Tail {
  T v[16] = {};

  Tail() = default;
  Tail(const T* from, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) v[i] = from[i];
  }
  void copy_to(T* to, std::int64_t n) const {
    for (std::int64_t i = 0; i < n; ++i) to[i] = v[i];
  }
};

// Calls f with a null pointer of the element type.
template <class S, class Fn>
void with_dtype(DType dtype, Fn f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(static_cast<float*>(nullptr));
    case DType::kBFloat16:
      return f(static_cast<Bf16*>(nullptr));
    case DType::kFloat16:
      return f(static_cast<Half*>(nullptr));
  }
}

template <class S, class Out, class In>
void convert_typed(Out* out, const In* in, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) S::store(out + i, S::load(in + i));
  if (i == n) return;
  Tail<S, Out> result;
  S::store(result.v, S::load(Tail<S, In>(in + i, n - i).v));
  result.copy_to(out + i, n - i);
}

template <class S>
void convert(void* dst, DType dst_dtype, const void* src, DType src_dtype, std::int64_t n) {
  with_dtype<S>(dst_dtype, [=](auto* out) {
    with_dtype<S>(src_dtype, [=](auto* in) {
      using In = std::remove_pointer_t<decltype(in)>;
      convert_typed<S>(static_cast<decltype(out)>(dst), static_cast<const In*>(src), n);
    });
  });
}

template <class S>
void add_to(float* acc, const void* x, DType dtype, std::int64_t n, bool accumulate) {
  if (!accumulate) return convert<S>(acc, DType::kFloat32, x, dtype, n);
  with_dtype<S>(dtype, [=](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const T* in = static_cast<const T*>(x);
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      S::store(acc + i, S::add(S::load(acc + i), S::load(in + i)));
    }
    if (i == n) return;
    Tail<S, float> result(acc + i, n - i);
    S::store(result.v, S::add(S::load(result.v), S::load(Tail<S, T>(in + i, n - i).v)));
    result.copy_to(acc + i, n - i);
  });
}

template <class S>
void ordered_sum(float* out, const void* const* inputs, std::int64_t count, DType dtype,
                 std::int64_t begin, std::int64_t n, bool accumulate) {
  with_dtype<S>(dtype, [=](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    const std::int64_t end = begin + n;
    std::int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      auto sum = S::load(static_cast<const T*>(inputs[0]) + i);
      for (std::int64_t k = 1; k < count; ++k) {
        sum = S::add(sum, S::load(static_cast<const T*>(inputs[k]) + i));
      }
      S::store(out + i, accumulate ? S::add(S::load(out + i), sum) : sum);
    }
    if (i == end) return;
    const std::int64_t rest = end - i;
    auto sum = S::load(Tail<S, T>(static_cast<const T*>(inputs[0]) + i, rest).v);
    for (std::int64_t k = 1; k < count; ++k) {
      sum = S::add(sum, S::load(Tail<S, T>(static_cast<const T*>(inputs[k]) + i, rest).v));
    }
    Tail<S, float> result(out + i, rest);
    S::store(result.v, accumulate ? S::add(S::load(result.v), sum) : sum);
    result.copy_to(out + i, rest);
  });
}

template <class S>
void scale(float* x, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

template <class S>
void add_rows(void* out, const void* a, const void* b, DType dtype, std::int64_t n) {
  with_dtype<S>(dtype, [=](auto* tag) {
    using T = std::remove_pointer_t<decltype(tag)>;
    T* to = static_cast<T*>(out);
    const T* x = static_cast<const T*>(a);
    const T* y = static_cast<const T*>(b);
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      S::store(to + i, S::add(S::load(x + i), S::load(y + i)));
    }
    if (i == n) return;
    Tail<S, T> result;
    S::store(result.v,
             S::add(S::load(Tail<S, T>(x + i, n - i).v), S::load(Tail<S, T>(y + i, n - i).v)));
    result.copy_to(to + i, n - i);
  });
}

}  // namespace sluice::isa
