// Attention by batched products: the copy of heads by one thread, and softmax with dropout of one
// row of scores by one warp. The masks are those of kernels/cpu.
#pragma once

#include "kernels/cuda/attention_args.hpp"
#include "kernels/cuda/branch_body.hpp"
#include "kernels/cuda/entropy_body.hpp"

namespace sluice::cuda {

// Packs of 16 bytes of `dtype` in one of a chunk's tensors.
template <class T>
SLUICE_BODY std::int64_t head_packs(const HeadCopy& a, const HeadRows& of) {
  return a.chunk.heads * of.rows * of.group * (a.width / Pack<T>::kSize);
}

// Eight or four neighbours of packed fp32 as a pack of T.
template <class T>
SLUICE_BODY Pack<T> load_wide(const float* from) {
  Pack<T> pack;
  for (int j = 0; j < Pack<T>::kSize; j += Pack<float>::kSize) {
    const Pack<float> part = load_pack(from + j, Pack<float>::kSize, true);
    for (int k = 0; k < Pack<float>::kSize; ++k) pack.v[j + k] = part.v[k];
  }
  return pack;
}

// Pack `index` of one tensor. `back`: from packed memory.
template <class T>
SLUICE_BODY void copy_heads_body(const HeadCopy& a, const HeadRows& of, std::int64_t index,
                                 bool back, bool aligned) {
  const auto packs = static_cast<std::uint64_t>(a.width / Pack<T>::kSize);
  const auto group = static_cast<std::uint64_t>(of.group);
  const auto rows = static_cast<std::uint64_t>(of.rows);
  const std::uint64_t line = static_cast<std::uint64_t>(index) / packs;
  const std::uint64_t token_line = line / group;
  const auto column =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(index) - line * packs) * Pack<T>::kSize;
  const auto token = static_cast<std::int64_t>(token_line % rows);
  const std::int64_t number = a.chunk.first + static_cast<std::int64_t>(token_line / rows);
  const std::int64_t sample = number / a.chunk.kv_heads;
  const std::int64_t head = (number - sample * a.chunk.kv_heads) * of.group +
                            static_cast<std::int64_t>(line - token_line * group);
  const std::int64_t n = token < a.chunk.seq ? a.head_dim - column : 0;  // may be negative
  T* at = static_cast<T*>(of.tokens) + sample * of.sample_stride + token * of.token_stride +
          head * a.head_dim + column;
  if (back) {
    if (n > 0)
      store_pack(at, load_wide<T>(static_cast<const float*>(of.packed) + index * Pack<T>::kSize), n,
                 aligned);
  } else {
    store_pack(static_cast<T*>(of.packed) + index * Pack<T>::kSize, load_pack(at, n, aligned),
               Pack<T>::kSize, true);
  }
}

// The factors of four elements of a stream, 0 or keep, from any element on.
SLUICE_BODY void mask_four(const MaskPlace& m, std::uint64_t stream, std::int64_t element,
                           float (&factor)[4]) {
  const std::uint64_t block = static_cast<std::uint64_t>(element) / 4;
  const int shift = static_cast<int>(static_cast<std::uint64_t>(element) % 4);
  mask_block(m, stream, block, factor);
  if (shift == 0) return;
  float next[4];
  mask_block(m, stream, block + 1, next);
  const float later[6] = {factor[1], factor[2], factor[3], next[0], next[1], next[2]};
  for (int k = 0; k < 3; ++k) {
    factor[k] = shift == 1 ? later[k] : shift == 2 ? later[k + 1] : later[k + 2];
  }
  factor[3] = shift == 1 ? next[0] : shift == 2 ? next[1] : next[2];
}

// One row of scores: its query sees the columns [begin, end).
struct ScoreRow {
  std::int64_t at = 0;  // of the row's first element
  int begin = 0, end = 0;
  std::uint64_t stream = 0;
  std::int64_t element = 0;  // of column 0 in the stream

  SLUICE_BODY bool sees(int column) const {
    return static_cast<unsigned>(column - begin) < static_cast<unsigned>(end - begin);
  }
};

SLUICE_BODY ScoreRow score_row(const AttentionScores& a, std::int64_t row) {
  const std::int64_t line = row / a.group;  // (head, query)
  const std::int64_t chunk_head = line / a.queries;
  const std::int64_t number = a.chunk.first + chunk_head;
  const std::int64_t sample = number / a.chunk.kv_heads;
  const std::int64_t head =
      (number - sample * a.chunk.kv_heads) * a.group + (row - line * a.group) + a.first_head;
  const std::int64_t token = a.first_query + (line - chunk_head * a.queries);
  std::int64_t from = 0;  // the first token that the query sees
  if (a.positions != nullptr) from = token - a.positions[sample * a.chunk.seq + token];
  if (a.window > 0 && token - a.window + 1 > from) from = token - a.window + 1;
  ScoreRow at;
  at.at = row * a.keys;
  at.begin = from > a.first_key ? static_cast<int>(from - a.first_key) : 0;
  at.end = static_cast<int>(token + 1 - a.first_key);
  at.stream = sample_stream(a.mask, static_cast<std::uint64_t>(sample));
  at.element = (head * a.chunk.seq + token) * a.chunk.seq + a.first_key;
  return at;
}

// f(first column, four scaled scores) for the lane's packs that hold columns the query sees.
template <class Fn>
SLUICE_BODY void for_seen(const AttentionScores& a, const ScoreRow& row, int lane, Fn f) {
  for (int i = row.begin / 4 * 4 + 4 * lane; i < row.end; i += 4 * kWarp) {
    Pack<float> x = load_pack(a.scores + row.at + i, 4, true);
    for (int j = 0; j < 4; ++j) x.v[j] *= a.scale;
    f(i, x);
  }
}

SLUICE_BODY MaxSum max_sum_of_seen(const AttentionScores& a, const ScoreRow& row,
                                   const Warp& warp) {
  return warp.reduce(
      [&](int lane) {
        MaxSum part;
        for_seen(a, row, lane, [&](int i, const Pack<float>& x) {
          float max = part.max;
          for (int j = 0; j < 4; ++j) max = row.sees(i + j) && x.v[j] > max ? x.v[j] : max;
          float sum = scaled_to(part, max);
          for (int j = 0; j < 4; ++j) {
            if (row.sees(i + j)) sum += x.v[j] == max ? 1.0F : exp32(x.v[j] - max);
          }
          part = {max, sum};
        });
        return part;
      },
      MergeMaxSum{});
}

// The weights before dropout of four scaled scores; 0 for columns that the query does not see.
SLUICE_BODY void weights_of(const ScoreRow& row, int i, const MaxSum& all, float inverse,
                            Pack<float>& x) {
  for (int j = 0; j < 4; ++j) {
    x.v[j] = row.sees(i + j) ? exp32(x.v[j] - all.max) * inverse : 0.0F;
  }
}

SLUICE_BODY void factors_of(const AttentionScores& a, const ScoreRow& row, int i,
                            float (&factor)[4]) {
  for (int j = 0; j < 4; ++j) factor[j] = 1.0F;
  if (a.mask.threshold > 0) mask_four(a.mask, row.stream, row.element + i, factor);
}

// Writes zeros to the lane's packs in which the query sees no column.
template <class T>
SLUICE_BODY void clear_unseen(const AttentionScores& a, const ScoreRow& row, int lane, T* to) {
  const Pack<float> zeros = {};
  const int start = row.begin / 4 * 4, rest = (row.end + 3) / 4 * 4;
  const int keys = static_cast<int>(a.keys);
  for (int i = 4 * lane; i < start; i += 4 * kWarp) store_quad(to + row.at + i, zeros, 4);
  for (int i = rest + 4 * lane; i < keys; i += 4 * kWarp) store_quad(to + row.at + i, zeros, 4);
}

template <class T>
SLUICE_BODY void score_weights_body(const AttentionScores& a, std::int64_t index,
                                    const Warp& warp) {
  const ScoreRow row = score_row(a, index);
  const MaxSum all = max_sum_of_seen(a, row, warp);
  const float inverse = quotient(1.0F, all.sum);
  T* to = static_cast<T*>(a.weights);
  warp.each([&](int lane) {
    for_seen(a, row, lane, [&](int i, Pack<float> x) {
      float factor[4];
      weights_of(row, i, all, inverse, x);
      factors_of(a, row, i, factor);
      for (int j = 0; j < 4; ++j) x.v[j] *= factor[j];
      store_quad(to + row.at + i, x, 4);
    });
    clear_unseen(a, row, lane, to);
  });
}

// The gradient of four weights before dropout.
SLUICE_BODY Pack<float> weight_grads(const AttentionScores& a, const ScoreRow& row, int i,
                                     const float (&factor)[4]) {
  Pack<float> grad = load_pack(a.grad + row.at + i, 4, true);
  for (int j = 0; j < 4; ++j) grad.v[j] = row.sees(i + j) ? grad.v[j] * factor[j] : 0.0F;
  return grad;
}

template <class T>
SLUICE_BODY void score_gradients_body(const AttentionScores& a, std::int64_t index,
                                      const Warp& warp) {
  const ScoreRow row = score_row(a, index);
  const MaxSum all = max_sum_of_seen(a, row, warp);
  const float inverse = quotient(1.0F, all.sum);
  const float dot = warp.sum([&](int lane) {
                          Two sum;
                          for_seen(a, row, lane, [&](int i, Pack<float> x) {
                            float factor[4];
                            weights_of(row, i, all, inverse, x);
                            factors_of(a, row, i, factor);
                            const Pack<float> grad = weight_grads(a, row, i, factor);
                            for (int j = 0; j < 4; ++j) sum.a += x.v[j] * grad.v[j];
                          });
                          return sum;
                        })
                        .a;
  T* weights = static_cast<T*>(a.weights);
  T* score_grad = static_cast<T*>(a.score_grad);
  warp.each([&](int lane) {
    for_seen(a, row, lane, [&](int i, Pack<float> x) {
      float factor[4];
      weights_of(row, i, all, inverse, x);
      factors_of(a, row, i, factor);
      Pack<float> grad = weight_grads(a, row, i, factor);
      for (int j = 0; j < 4; ++j) {
        grad.v[j] = a.scale * x.v[j] * (grad.v[j] - dot);
        x.v[j] *= factor[j];
      }
      store_quad(weights + row.at + i, x, 4);
      store_quad(score_grad + row.at + i, grad, 4);
    });
    clear_unseen(a, row, lane, weights);
    clear_unseen(a, row, lane, score_grad);
  });
}

}  // namespace sluice::cuda
