// Sums over rows in the order of kernels/cpu, with its bits: kSumRows rows one after another give a
// part, then the parts one after another give the total. No atomics. The first bodies write the
// parts of one pack of columns and one block of rows, the last one adds one column's parts.
#pragma once

#include "kernels/cuda/block_args.hpp"
#include "kernels/cuda/elements.hpp"

namespace sluice::cuda {

// Where the parts of a block of rows go.
struct PartRows {
  std::int64_t block = 0, first = 0, last = 0;
  SLUICE_BODY static PartRows of(std::int64_t block, std::int64_t rows) {
    const std::int64_t first = block * kSumRows;
    const std::int64_t last = first + kSumRows;
    return {block, first, last < rows ? last : rows};
  }
};

template <class T>
SLUICE_BODY void store_parts(float* parts, const float (&sum)[Pack<T>::kCount], std::int64_t n) {
  for (int j = 0; j < Pack<T>::kSize; ++j) {
    if (j < n) parts[j] = sum[j];
  }
}

// The packs of one place in a row of each matrix.
template <class T, std::size_t kMatrices>
struct RowPacks {
  Pack<T> of[kMatrices];
};

// Calls f(row, packs) for each row in order. from[k]: the address of the pack in row 0 of matrix k.
// kLoads loads of whole packs are in flight, because narrow matrices have too few warps to hide the
// latency of a load.
template <std::int64_t kLoads = 16, class T, std::size_t kMatrices, class Fn>
SLUICE_BODY void for_rows(const PartRows& rows, const T* const (&from)[kMatrices],
                          std::int64_t columns, std::int64_t n, bool aligned, Fn f) {
  constexpr std::int64_t kAhead = kLoads / std::int64_t{kMatrices};
  const bool whole = aligned && n >= Pack<T>::kSize;
  std::int64_t row = rows.first;
  for (; whole && row + kAhead <= rows.last; row += kAhead) {
    RawPack<T> next[std::size_t{kAhead}][kMatrices];
    SLUICE_UNROLL
    for (std::size_t j = 0; j < std::size_t{kAhead}; ++j) {
      const std::int64_t at = (row + static_cast<int>(j)) * columns;
      for (std::size_t k = 0; k < kMatrices; ++k) load_raw(from[k] + at, &next[j][k]);
    }
    SLUICE_UNROLL
    for (std::size_t j = 0; j < std::size_t{kAhead}; ++j) {
      RowPacks<T, kMatrices> packs;
      for (std::size_t k = 0; k < kMatrices; ++k) packs.of[k] = widen(next[j][k]);
      f(row + static_cast<int>(j), packs);
    }
  }
  for (; row < rows.last; ++row) {
    RowPacks<T, kMatrices> packs;
    for (std::size_t k = 0; k < kMatrices; ++k) {
      packs.of[k] = load_pack(from[k] + row * columns, n, aligned);
    }
    f(row, packs);
  }
}

template <class T>
SLUICE_BODY void column_parts_body(const ColumnParts& a, std::int64_t block, const Worker& worker,
                                   bool aligned) {
  const PartRows rows = PartRows::of(block, a.rows);
  for_packs<T>(a.columns, worker, [&](std::int64_t i, std::int64_t n) {
    float sum[Pack<T>::kCount] = {};
    const T* const from[] = {static_cast<const T*>(a.x) + i};
    for_rows(rows, from, a.columns, n, aligned, [&](std::int64_t, const RowPacks<T, 1>& packs) {
      for (int j = 0; j < Pack<T>::kSize; ++j) sum[j] += packs.of[0].v[j];
    });
    store_parts<T>(a.parts + block * a.columns + i, sum, n);
  });
}

// A pack of one of the matrices that lie side by side.
template <class T>
struct JoinedPack {
  // `pack` numbers the packs of all matrices, one matrix after another. Past the last pack n is 0.
  SLUICE_BODY JoinedPack(const JoinedRows& a, std::int64_t pack) {
    constexpr std::int64_t kSize = Pack<T>::kSize;
    std::int64_t begin = 0;
    SLUICE_UNROLL
    for (int k = 0; k < JoinedRows::kMatrices; ++k) {
      const std::int64_t here = (a.columns[k] + kSize - 1) / kSize;
      if (pack >= 0 && pack < here) {
        columns = a.columns[k];
        n = columns - pack * kSize;
        from = static_cast<const T*>(a.from[k]) + pack * kSize;
        column = begin + pack * kSize;
      }
      pack -= here;
      begin += a.columns[k];
    }
    all = begin;
  }
  const T* from = nullptr;   // in row 0
  std::int64_t columns = 0;  // of its matrix
  std::int64_t n = 0;        // from the pack's first one on
  std::int64_t column = 0;   // of the pack's first one among all
  std::int64_t all = 0;
};

template <class T>
SLUICE_BODY void join_rows_body(const JoinedRows& a, std::int64_t block, const Worker& worker,
                                bool aligned) {
  const PartRows rows = PartRows::of(block, a.rows);
  for (std::int64_t pack = worker.index;; pack += worker.count) {
    const JoinedPack<T> at(a, pack);
    if (at.n == 0) return;
    float sum[Pack<T>::kCount] = {};
    T* const to = static_cast<T*>(a.to) + at.column;
    const T* const from[] = {at.from};
    for_rows(rows, from, at.columns, at.n, aligned,
             [&](std::int64_t row, const RowPacks<T, 1>& packs) {
               for (int j = 0; j < Pack<T>::kSize; ++j) sum[j] += packs.of[0].v[j];
               store_pack(to + row * at.all, packs.of[0], at.n, aligned);
             });
    store_parts<T>(a.parts + block * at.all + at.column, sum, at.n);
  }
}

// Parts of the weight's gradient, then, for a bias, those of its gradient.
template <class T, bool kCentered>
SLUICE_BODY void norm_parts_body(const LayerNormArgs& a, const NormParts& to, std::int64_t block,
                                 const Worker& worker, bool aligned) {
  const PartRows rows = PartRows::of(block, a.rows);
  for_packs<T>(a.hidden, worker, [&](std::int64_t i, std::int64_t n) {
    float of_weight[Pack<T>::kCount] = {};
    float of_bias[Pack<T>::kCount] = {};
    const T* const from[] = {static_cast<const T*>(to.dy) + i, static_cast<const T*>(a.x) + i};
    for_rows(rows, from, a.hidden, n, aligned, [&](std::int64_t row, const RowPacks<T, 2>& packs) {
      const Pack<T>&g = packs.of[0], &at = packs.of[1];
      const float mean = kCentered ? a.mean[row] : 0.0F;
      const float rstd = a.rstd[row];
      for (int j = 0; j < Pack<T>::kSize; ++j) {
        of_weight[j] = fma32(g.v[j], (at.v[j] - mean) * rstd, of_weight[j]);
        if (kCentered) of_bias[j] += g.v[j];
      }
    });
    float* parts = to.parts + block * a.hidden + i;
    store_parts<T>(parts, of_weight, n);
    if (kCentered)
      store_parts<T>(parts + (a.rows + kSumRows - 1) / kSumRows * a.hidden, of_bias, n);
  });
}

SLUICE_BODY void column_total_body(const ColumnTotal& a, std::int64_t column) {
  constexpr std::int64_t kAhead = 16;  // loads in flight
  float sum = a.accumulate ? a.total[column] : 0.0F;
  const float* from = a.parts + column;
  std::int64_t block = 0;
  for (; block + kAhead <= a.blocks; block += kAhead) {
    float next[kAhead];
    for (int j = 0; j < kAhead; ++j) next[j] = from[(block + j) * a.columns];
    for (int j = 0; j < kAhead; ++j) sum += next[j];
  }
  for (; block < a.blocks; ++block) sum += from[block * a.columns];
  a.total[column] = sum;
}

}  // namespace sluice::cuda
