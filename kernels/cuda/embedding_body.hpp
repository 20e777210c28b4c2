// Lookup in a token table or a rank's slice of one, and its gradient, with the bits of kernels/cpu:
// the tokens of one row are added in their order. No atomics and no partial sums: one body sorts
// the tokens by row, another adds the tokens of each row to the gradient.
//
// A row may have most of the tokens, and each addition waits for the one before. So a row is cut
// into runs of columns, a warp each, and a warp loads many tokens before it adds the first.
#pragma once

#include "kernels/cuda/block_args.hpp"
#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/warp.hpp"

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

SLUICE_BODY std::int64_t row_of_token(const TokenRows& at, std::int32_t token) {
  if (at.rows != nullptr) return at.rows[token];
  return static_cast<std::uint32_t>(token) % static_cast<std::uint32_t>(at.period);
}

// The sort key of a token: tokens are ordered by row, then by token. Tokens without a valid row
// come last.
SLUICE_BODY std::uint32_t order_key(std::int64_t row) {
  constexpr std::uint32_t kLast = 0xfffffffeU;
  return row >= 0 && row < kLast ? static_cast<std::uint32_t>(row) : kLast;
}

// The place of a token in the order if `rows` is null, so rows repeat with a period.
SLUICE_BODY std::int64_t periodic_place(const TokenRows& at, std::int64_t token) {
  const std::int64_t row = token % at.period, rest = at.tokens % at.period;
  return row * (at.tokens / at.period) + (row < rest ? row : rest) + token / at.period;
}

// Tokens whose places a warp finds together.
inline constexpr int kPlaced = 8;

// Adds to counts[i] the number of the lane's tokens in [begin, end) whose key is below bounds[i].
SLUICE_BODY void count_below(const TokenRows& at, std::int64_t begin, std::int64_t end, int lane,
                             const std::uint32_t (&bounds)[kPlaced],
                             std::uint32_t (&counts)[kPlaced]) {
  constexpr int kAhead = 4;
  for (std::int64_t n = begin + lane; n < end; n += std::int64_t{kAhead} * kWarp) {
    std::uint32_t keys[kAhead];
    for (int j = 0; j < kAhead; ++j) {
      const std::int64_t other = n + j * kWarp;
      keys[j] = other < end ? order_key(at.rows[other]) : 0xffffffffU;
    }
    for (const std::uint32_t key : keys) {
      for (int i = 0; i < kPlaced; ++i) counts[i] += key < bounds[i] ? 1U : 0U;
    }
  }
}

// Writes the kPlaced tokens from `first` on to their places in the order. Each token is compared
// with all tokens. A micro-batch has few tokens, so one launch is enough.
SLUICE_BODY void sorted_order_body(const TokenRows& at, std::int64_t first, const Warp& warp,
                                   std::int32_t* order) {
  std::uint32_t keys[kPlaced], bounds[kPlaced], places[kPlaced] = {};
  for (int i = 0; i < kPlaced; ++i) {
    keys[i] = first + i < at.tokens ? order_key(at.rows[first + i]) : 0;
    bounds[i] = keys[i] + 1;  // earlier tokens of the same row count, too
  }
  warp.count(places, [&](int lane, std::uint32_t(&counts)[kPlaced]) {
    count_below(at, 0, first, lane, bounds, counts);
    count_below(at, first, at.tokens, lane, keys, counts);
  });
  for (int i = 0; i < kPlaced; ++i) {
    for (int j = 0; j < i; ++j) places[i] += keys[j] == keys[i] ? 1U : 0U;
  }
  warp.each([&](int lane) {
    for (int i = 0; lane == 0 && i < kPlaced; ++i) {
      if (first + i < at.tokens) order[places[i]] = static_cast<std::int32_t>(first + i);
    }
  });
}

SLUICE_BODY void token_order_body(const TokenRows& at, std::int64_t first, const Warp& warp,
                                  std::int32_t* order) {
  if (first >= at.tokens) return;
  if (at.rows != nullptr) return sorted_order_body(at, first, warp, order);
  warp.each([&](int lane) {
    const std::int64_t token = first + lane;
    if (lane >= kPlaced || token >= at.tokens) return;
    order[periodic_place(at, token)] = static_cast<std::int32_t>(token);
  });
}

// Columns of a lane, and of a warp's run of a row.
inline constexpr int kLaneColumns = 4, kRunColumns = kWarp * kLaneColumns;

// Loads a lane's columns of one token. `kAligned`: the address is a multiple of the Quad's size.
// Past the row's end the first column is repeated.
template <class T, bool kAligned>
SLUICE_BODY void load_columns(const T* from, int count, Quad<T>* raw) {
  if constexpr (kAligned) {
    load_quad(from, raw);
  } else {
    for (int k = 0; k < kLaneColumns; ++k) raw->v[k] = from[k < count ? k : 0];
  }
}

// A lane's columns of a row, to which the columns of its tokens are added.
template <class T, bool kAligned>
struct RowColumns {
  const T* dy;  // the lane's columns of token 0
  int hidden;
  int count;  // columns before the row's end
  Pack<float> sum;

  SLUICE_BODY void load(std::int32_t token, Quad<T>* raw) const {
    load_columns<T, kAligned>(dy + std::int64_t{token} * hidden, count, raw);
  }
  SLUICE_BODY void add(const Quad<T>& raw) {
    for (int k = 0; k < kLaneColumns; ++k) sum.v[k] += widen(raw.v[k]);
  }
};

// The token at a place of the order if it is of the row, or else -1.
SLUICE_BODY std::int32_t token_of_row(const EmbeddingGradient& a, std::int64_t row,
                                      std::int64_t place) {
  if (place >= a.at.tokens) return -1;
  const std::int32_t token = a.order[place];
  return row_of_token(a.at, token) == row ? token : -1;
}

// Adds the tokens of one row from place `first` of the order on.
template <class T, bool kAligned>
SLUICE_BODY void add_tokens(const EmbeddingGradient& a, std::int64_t row, std::int64_t first,
                            const Warp& warp, RowColumns<T, kAligned>* columns) {
  const auto tokens_from = [&](std::int64_t place) {
    return warp.values([&](int lane) { return token_of_row(a, row, place + lane); });
  };
  std::int64_t place = first;
  LaneValues<std::int32_t> tokens = tokens_from(place);
  if constexpr (kAligned && sizeof(T) == 2) {  // then 32 tokens fit into 64 registers
    while (tokens[kWarp - 1] >= 0) {
      Quad<T> raw[std::size_t{kWarp}];
      for (int j = 0; j < kWarp; ++j) columns->load(tokens[j], &raw[j]);
      tokens = tokens_from(place += kWarp);  // while the columns are on their way
      for (int j = 0; j < kWarp; ++j) columns->add(raw[j]);
    }
  }
  constexpr int kSome = 8;
  for (int i = 0; tokens[i] >= 0;) {
    std::int32_t token[std::size_t{kSome}];
    Quad<T> raw[std::size_t{kSome}];
    for (int j = 0; j < kSome; ++j) {
      token[j] = tokens[i + j];
      if (token[j] >= 0) columns->load(token[j], &raw[j]);
    }
    for (int j = 0; j < kSome; ++j) {
      if (token[j] >= 0) columns->add(raw[j]);
    }
    i += kSome;
    if (i < kWarp) continue;
    tokens = tokens_from(place += kWarp);
    i = 0;
  }
}

// A lane's columns from `column` on of the row whose tokens begin at `place`. A lane behind the
// row's end helps the others to look tokens up: it reads the first columns and stores nothing.
template <class T, bool kAligned>
SLUICE_BODY void add_row(const EmbeddingGradient& a, std::int64_t row, std::int64_t place,
                         std::int64_t column, const Warp& warp) {
  static_assert(kLaneColumns == Pack<float>::kSize);
  const bool within = column < a.hidden;
  const std::int64_t i = within ? column : 0, count = a.hidden - i;
  float* to = a.grad + (row - a.first) * a.hidden + i;
  RowColumns<T, kAligned> columns{static_cast<const T*>(a.dy) + i, static_cast<int>(a.hidden),
                                  static_cast<int>(count),
                                  load_pack(to, within ? count : 0, kAligned)};
  add_tokens(a, row, place, warp, &columns);
  if (within) store_pack(to, columns.sum, count, kAligned);
}

// The row whose tokens begin at `place` of the order, if one does and the gradient has it; or -1.
SLUICE_BODY std::int64_t row_beginning(const EmbeddingGradient& a, std::int64_t place) {
  if (place >= a.at.tokens) return -1;
  const std::int64_t row = row_of_token(a.at, a.order[place]);
  if (row < a.first || row >= a.first + a.rows) return -1;
  return place > 0 && row_of_token(a.at, a.order[place - 1]) == row ? -1 : row;
}

// Places of the order that a warp looks at. Most of them begin no row where few rows have many
// tokens.
inline constexpr int kRowPlaces = 8;

// Run `run` of the rows that begin at kRowPlaces places from `first` on.
template <class T, bool kAligned>
SLUICE_BODY void embedding_rows_body(const EmbeddingGradient& a, std::int64_t first,
                                     std::int64_t run, const Warp& warp) {
  warp.each([&](int lane) {
    const auto rows = warp.values(
        [&](int i) { return i < kRowPlaces ? row_beginning(a, first + i) : std::int64_t{-1}; });
    const std::int64_t places = a.at.tokens - first;
    for (int i = 0; i < kRowPlaces && i < places; ++i) {
      const std::int64_t row = rows[i];
      if (row < 0) continue;
      add_row<T, kAligned>(a, row, first + i, run * kRunColumns + lane * kLaneColumns, warp);
    }
  });
}

}  // namespace sluice::cuda
