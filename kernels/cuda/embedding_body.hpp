// Lookup in a rank's slice of a token table, and its gradient: one token by the threads of a row.
#pragma once

#include "kernels/cuda/block_args.hpp"
#include "kernels/cuda/elements.hpp"

namespace sluice::cuda {

template <class T>
SLUICE_BODY void token_lookup_body(const TokenLookup& a, std::int64_t t, const Worker& worker,
                                   bool aligned) {
  const std::int64_t token = a.at.tokens[t];
  const std::int64_t row = token - a.at.first;
  const bool own = row >= 0 && row < a.at.rows;
  const bool known = token >= 0 && token < a.at.words;
  const T* from = static_cast<const T*>(a.table) + row * a.at.hidden;
  T* to = static_cast<T*>(a.out) + t * a.at.hidden;
  for_packs<T>(a.at.hidden, worker, [&](std::int64_t i, std::int64_t n) {
    Pack<T> values;
    if (own) {
      values = load_pack(from + i, n, aligned);
    } else {
      for (float& value : values.v) value = known ? 0.0F : from_bits(0x7fc00000U);  // NaN
    }
    store_pack(to + i, values, n, aligned);
  });
}

// The fp32 elements that go with a pack of T.
template <class T>
SLUICE_BODY Pack<T> load_sums(const float* from, std::int64_t n, bool aligned) {
  constexpr int kFloats = Pack<float>::kSize;
  Pack<T> sums;
  for (int k = 0; k < Pack<T>::kSize; k += kFloats) {
    const Pack<float> part = load_pack(from + k, n - k, aligned);
    for (int j = 0; j < kFloats; ++j) sums.v[k + j] = part.v[j];
  }
  return sums;
}

template <class T>
SLUICE_BODY void store_sums(float* to, const Pack<T>& sums, std::int64_t n, bool aligned) {
  constexpr int kFloats = Pack<float>::kSize;
  for (int k = 0; k < Pack<T>::kSize; k += kFloats) {
    Pack<float> part;
    for (int j = 0; j < kFloats; ++j) part.v[j] = sums.v[k + j];
    store_pack(to + k, part, n - k, aligned);
  }
}

// The first of equal tokens adds them all, so each element has one writer.
template <class T>
SLUICE_BODY void token_gradient_body(const TokenGradient& a, std::int64_t i, const Worker& worker,
                                     bool aligned) {
  const std::int64_t token = a.at.tokens[i];
  const std::int64_t row = token - a.at.first;
  if (row < 0 || row >= a.at.rows || (i > 0 && a.at.tokens[i - 1] == token)) return;
  const T* dy = static_cast<const T*>(a.dy);
  for_packs<T>(a.at.hidden, worker, [&](std::int64_t at, std::int64_t n) {
    float* const to = a.grad + row * a.at.hidden + at;
    Pack<T> sums = load_sums<T>(to, n, aligned);
    for (std::int64_t k = i; k < a.at.count && a.at.tokens[k] == token; ++k) {
      const Pack<T> next = load_pack(dy + a.order[k] * a.at.hidden + at, n, aligned);
      for (int j = 0; j < Pack<T>::kSize; ++j) sums.v[j] += next.v[j];
    }
    store_sums(to, sums, n, aligned);
  });
}

}  // namespace sluice::cuda
