// Largest magnitude and 8-bit copy of a bf16 matrix (fp8_args.hpp). A maximum is exact and does not
// depend on the order, so no sum and no atomic is needed: each thread block writes the largest
// magnitude of its part, and each block of the next kernel reads all parts.
//
// Codes are those of kernels/cpu/fp8_core.hpp. From compute capability 8.9 on the hardware's
// conversion makes them, but for the sign of a NaN.
#pragma once

#include "kernels/cpu/fp8_core.hpp"
#include "kernels/cuda/elements.hpp"
#include "kernels/cuda/fp8_args.hpp"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#include <cuda_fp8.h>
#endif

namespace sluice::cuda {

// Eight bf16 or sixteen codes of memory. A word's low half comes first.
struct alignas(16) Words {
  static constexpr int kCount = 4;
  static constexpr std::int64_t kElems = 8;
  std::uint32_t v[kCount] = {};
};

SLUICE_BODY Words load_words(const void* from) {
  Words words;
#ifdef SLUICE_DEVICE_CODE
  const uint4 raw = *static_cast<const uint4*>(from);
  memcpy(&words, &raw, sizeof words);
#else
  std::memcpy(&words, __builtin_assume_aligned(from, 16), sizeof words);
#endif
  return words;
}

SLUICE_BODY void store_words(void* to, const Words& words) {
#ifdef SLUICE_DEVICE_CODE
  uint4 raw;
  memcpy(&raw, &words, sizeof raw);
  *static_cast<uint4*>(to) = raw;
#else
  std::memcpy(__builtin_assume_aligned(to, 16), &words, sizeof words);
#endif
}

// The larger one of each half, as unsigned integers.
SLUICE_BODY std::uint32_t larger_halves(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  return __vmaxu2(a, b);
#else
  const std::uint32_t low_a = a & 0xffffU, low_b = b & 0xffffU, high_a = a >> 16, high_b = b >> 16;
  return (low_a > low_b ? low_a : low_b) | (high_a > high_b ? high_a : high_b) << 16;
#endif
}

// Four values times the scale, as codes.
template <class Format>
SLUICE_BODY std::uint32_t encode4(const float (&x)[4], float scale) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  constexpr __nv_fp8_interpretation_t kFormat = Format::kMantissa == 3 ? __NV_E4M3 : __NV_E5M2;
  const auto pair = [scale](float low, float high) -> std::uint32_t {
    return __nv_cvt_float2_to_fp8x2({low * scale, high * scale}, __NV_SATFINITE, kFormat);
  };
  return pair(x[0], x[1]) | pair(x[2], x[3]) << 16;
#else
  std::uint32_t codes = 0;
  for (int j = 0; j < 4; ++j) {
    codes |= static_cast<std::uint32_t>(fp8::encode<Format>(x[j] * scale)) << (8 * j);
  }
  return codes;
#endif
}

// The matrix as runs of neighbours in memory: its rows, or pieces of a matrix without gaps.
struct Fp8Runs {
  SLUICE_BODY explicit Fp8Runs(const Fp8Operand& a) : total(a.rows * a.columns) {
    constexpr std::int64_t kPiece = 8192;
    const bool whole = a.stride == a.columns;
    length = whole ? kPiece : a.columns;
    stride = whole ? kPiece : a.stride;
    count = (total + length - 1) / length;
  }
  [[nodiscard]] SLUICE_BODY std::int64_t elems(std::int64_t run) const {
    const std::int64_t rest = total - run * length;
    return rest < length ? rest : length;
  }
  std::int64_t total;
  std::int64_t length = 0, stride = 0, count = 0;
};

// Bits of the largest magnitude in the runs of block `block.index`, as one thread sees them. Where
// the rows' largest magnitudes are known, x is not read.
SLUICE_BODY std::uint32_t fp8_parts_body(const Fp8Operand& a, const Worker& block,
                                         const Worker& thread) {
  if (a.row_maxima != nullptr) {
    std::uint32_t most = 0;
    for (std::int64_t row = block.index * thread.count + thread.index; row < a.rows;
         row += block.count * thread.count) {
      most = larger(most, a.row_maxima[row]);
    }
    return most;
  }
  constexpr int kAhead = 4;  // loads in flight
  const Fp8Runs runs(a);
  std::uint32_t halves = 0;
  for (std::int64_t run = block.index; run < runs.count; run += block.count) {
    const auto* from = static_cast<const std::uint16_t*>(a.x) + run * runs.stride;
    const std::int64_t n = runs.elems(run), step = thread.count * Words::kElems;
    for (std::int64_t i = thread.index * Words::kElems; i < n; i += kAhead * step) {
      Words next[kAhead];
      for (int j = 0; j < kAhead; ++j) {
        if (i + j * step < n) next[j] = load_words(from + i + j * step);
      }
      for (int j = 0; j < kAhead; ++j) {
        for (const std::uint32_t word : next[j].v) {
          halves = larger_halves(halves, word & 0x7fff7fffU);
        }
      }
    }
  }
  return larger(halves << 16, halves & 0xffff0000U);
}

// Codes in the order of x. The last runs come first: the kernel before has read them last, and they
// may still be in L2.
template <class Format>
SLUICE_BODY void fp8_rows_body(const Fp8Operand& a, float scale, const Worker& block,
                               const Worker& thread) {
  constexpr std::int64_t kCodes = 16;  // that a thread stores at once
  const Fp8Runs runs(a);
  for (std::int64_t run = runs.count - 1 - block.index; run >= 0; run -= block.count) {
    const auto* from = static_cast<const std::uint16_t*>(a.x) + run * runs.stride;
    auto* to = static_cast<std::uint8_t*>(a.codes) + run * runs.length;
    const std::int64_t n = runs.elems(run);
    for (std::int64_t i = thread.index * kCodes; i < n; i += thread.count * kCodes) {
      const Words in[2] = {load_words(from + i), load_words(from + i + Words::kElems)};
      Words out;
      for (int j = 0; j < Words::kCount; ++j) {
        const std::uint32_t* pair = &in[j / 2].v[j % 2 * 2];
        out.v[j] = encode4<Format>(
            {low_value(pair[0]), high_value(pair[0]), low_value(pair[1]), high_value(pair[1])},
            scale);
      }
      store_words(to + i, out);
    }
  }
}

// Codes of a transposed tile in shared memory: 64 columns of x, each of 128 rows. Groups of four
// words are permuted by an XOR with a number that depends on the column (group()). Neither stores
// nor loads of a warp then have bank conflicts.
struct alignas(16) Fp8Tile {
  static constexpr int kColumns = 64;
  static constexpr int kRows = 128;
  static constexpr int kThreads = 256;
  static constexpr int kGroups = kRows / 16;
  SLUICE_BODY std::uint32_t* group(int column, int index) {
    return words[column][index ^ (column / kGroups % kGroups)];
  }
  std::uint32_t words[kColumns][kGroups][Words::kCount];
};

// The place of a tile; tiles of the same rows are neighbours.
struct Fp8TilePlace {
  SLUICE_BODY Fp8TilePlace(const Fp8Operand& a, std::int64_t tile) {
    const std::int64_t across = (a.columns + Fp8Tile::kColumns - 1) / Fp8Tile::kColumns;
    row = tile / across * Fp8Tile::kRows;
    column = tile % across * Fp8Tile::kColumns;
  }
  [[nodiscard]] SLUICE_BODY static std::int64_t count(const Fp8Operand& a) {
    return (a.rows + Fp8Tile::kRows - 1) / Fp8Tile::kRows *
           ((a.columns + Fp8Tile::kColumns - 1) / Fp8Tile::kColumns);
  }
  std::int64_t row = 0, column = 0;
};

// Eight codes of a row from the words of eight bf16.
template <class Format>
SLUICE_BODY void store_row_codes(std::uint8_t* to, const Words& in, float scale) {
  const std::uint32_t codes[2] = {encode4<Format>({low_value(in.v[0]), high_value(in.v[0]),
                                                   low_value(in.v[1]), high_value(in.v[1])},
                                                  scale),
                                  encode4<Format>({low_value(in.v[2]), high_value(in.v[2]),
                                                   low_value(in.v[3]), high_value(in.v[3])},
                                                  scale)};
#ifdef SLUICE_DEVICE_CODE
  *reinterpret_cast<uint2*>(to) = {codes[0], codes[1]};
#else
  std::memcpy(to, codes, sizeof codes);
#endif
}

// A thread transposes 4 rows of 8 columns. Unless a.codes is null, it also stores the codes in the
// order of x. Lanes of a warp: 8 packs of a row, 4 quads of rows.
template <class Format>
SLUICE_BODY void fp8_tile_load(const Fp8Operand& a, float scale, const Fp8TilePlace& at, int thread,
                               Fp8Tile* tile) {
  constexpr int kQuad = 4, kPacks = Fp8Tile::kColumns / 8;
  const int pack = thread % kPacks, quad = thread / kPacks % kQuad;
  const int group = thread / (kPacks * kQuad);
  const std::int64_t row = at.row + group * 16 + quad * kQuad, column = at.column + pack * 8;
  const std::int64_t rows = column < a.columns ? a.rows - row : 0;
  Words in[kQuad];
  for (int i = 0; i < kQuad; ++i) {
    if (i < rows) {
      in[i] = load_words(static_cast<const std::uint16_t*>(a.x) + (row + i) * a.stride + column);
    }
  }
  for (int j = 0; j < Words::kCount; ++j) {
    tile->group(pack * 8 + 2 * j, group)[quad] =
        encode4<Format>({low_value(in[0].v[j]), low_value(in[1].v[j]), low_value(in[2].v[j]),
                         low_value(in[3].v[j])},
                        scale);
    tile->group(pack * 8 + 2 * j + 1, group)[quad] =
        encode4<Format>({high_value(in[0].v[j]), high_value(in[1].v[j]), high_value(in[2].v[j]),
                         high_value(in[3].v[j])},
                        scale);
  }
  if (a.codes == nullptr) return;
  for (int i = 0; i < kQuad; ++i) {
    if (i < rows) {
      store_row_codes<Format>(static_cast<std::uint8_t*>(a.codes) + (row + i) * a.columns + column,
                              in[i], scale);
    }
  }
}

SLUICE_BODY void fp8_tile_store(const Fp8Operand& a, const Fp8TilePlace& at, int thread,
                                Fp8Tile* tile) {
  const std::int64_t length = (a.rows + kFp8Multiple - 1) / kFp8Multiple * kFp8Multiple;
  for (int i = thread; i < Fp8Tile::kColumns * Fp8Tile::kGroups; i += Fp8Tile::kThreads) {
    const int column = i / Fp8Tile::kGroups, group = i % Fp8Tile::kGroups;
    const std::int64_t row = at.row + group * 16;
    if (row >= length || at.column + column >= a.columns) continue;
    store_words(static_cast<std::uint8_t*>(a.turned) + (at.column + column) * length + row,
                load_words(tile->group(column, group)));
  }
}

}  // namespace sluice::cuda
