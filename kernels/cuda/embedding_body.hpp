// Lookup in a token table or a rank's slice of one, and its gradient, with the bits of kernels/cpu:
// the tokens of one row are added in their order. No atomics and no sum beside the gradient: one
// body sorts the tokens by row, another adds up a row.
#pragma once

#include "kernels/cuda/block_args.hpp"
#include "kernels/cuda/elements.hpp"

namespace sluice::cuda {

template <class T>
SLUICE_BODY void token_lookup_body(const TokenLookup& a, std::int64_t t, const Worker& worker,
                                   bool aligned) {
  const std::int64_t token = a.tokens[t];
  const std::int64_t row = token - a.first;
  const bool own = row >= 0 && row < a.rows;
  const bool known = token >= 0 && token < a.words;
  const T* from = static_cast<const T*>(a.table) + row * a.hidden;
  T* to = static_cast<T*>(a.out) + t * a.hidden;
  for_packs<T>(a.hidden, worker, [&](std::int64_t i, std::int64_t n) {
    Pack<T> values;
    if (own) {
      values = load_pack(from + i, n, aligned);
    } else {
      for (float& value : values.v) value = known ? 0.0F : from_bits(0x7fc00000U);  // NaN
    }
    store_pack(to + i, values, n, aligned);
  });
}

SLUICE_BODY std::int64_t row_of_token(const TokenRows& at, std::int64_t token) {
  return at.rows == nullptr ? token % at.period : at.rows[token];
}

// The token's place among all: by row, then by token. It is compared with every token, which are
// few, so a sort in one launch.
SLUICE_BODY std::int64_t place_of_token(const TokenRows& at, std::int64_t token) {
  if (at.rows == nullptr) {
    const std::int64_t row = token % at.period, rest = at.tokens % at.period;
    return row * (at.tokens / at.period) + (row < rest ? row : rest) + token / at.period;
  }
  const std::int64_t row = at.rows[token];
  std::int64_t place = 0;
  for (std::int64_t n = 0; n < token; ++n) place += at.rows[n] <= row ? 1 : 0;
  for (std::int64_t n = token + 1; n < at.tokens; ++n) place += at.rows[n] < row ? 1 : 0;
  return place;
}

// Adds the tokens of one row from place `first` of the order on to a run of its elements. The next
// token is looked up while this one's elements are read.
template <class T>
SLUICE_BODY void add_tokens(const EmbeddingGradient& a, std::int64_t row, std::int64_t first,
                            std::int64_t i, float (&sum)[Pack<T>::kCount], bool aligned) {
  const T* dy = static_cast<const T*>(a.dy) + i;
  std::int64_t token = a.order[first];
  for (std::int64_t place = first + 1; token >= 0; ++place) {
    const Pack<T> values = load_pack(dy + token * a.hidden, a.hidden - i, aligned);
    token = place < a.at.tokens ? a.order[place] : -1;
    if (token >= 0 && row_of_token(a.at, token) != row) token = -1;
    for (int k = 0; k < Pack<T>::kSize; ++k) sum[k] += values.v[k];
  }
}

// The row whose tokens begin at `place` of the order, if one does.
template <class T>
SLUICE_BODY void embedding_row_body(const EmbeddingGradient& a, std::int64_t place,
                                    const Worker& worker, bool aligned) {
  constexpr int kFloats = Pack<float>::kSize;
  const std::int64_t row = row_of_token(a.at, a.order[place]);
  const std::int64_t own = row - a.first;
  if (own < 0 || own >= a.rows) return;
  if (place > 0 && row_of_token(a.at, a.order[place - 1]) == row) return;
  for_packs<T>(a.hidden, worker, [&](std::int64_t i, std::int64_t n) {
    float* to = a.grad + own * a.hidden + i;
    float sum[Pack<T>::kCount];
    for (int k = 0; k < Pack<T>::kSize; k += kFloats) {
      const Pack<float> old = load_pack(to + k, n - k, aligned);
      for (int j = 0; j < kFloats; ++j) sum[k + j] = old.v[j];
    }
    add_tokens<T>(a, row, place, i, sum, aligned);
    for (int k = 0; k < Pack<T>::kSize; k += kFloats) {
      Pack<float> total;
      for (int j = 0; j < kFloats; ++j) total.v[j] = sum[k + j];
      store_pack(to + k, total, n - k, aligned);
    }
  });
}

}  // namespace sluice::cuda
