// The end of a block's branch for one row: out = residual + dropout(x + bias), with the masks of
// kernels/cpu, which are computed on the fly.
#pragma once

#include "kernels/cpu/philox_rounds.hpp"
#include "kernels/cuda/block_args.hpp"
#include "kernels/cuda/elements.hpp"

namespace sluice::cuda {

struct MaskTag;

// An element's place in its sample's stream.
struct StreamPlace {
  std::uint64_t stream = 0;
  std::int64_t element = 0;
};

SLUICE_BODY std::uint64_t sample_stream(const MaskPlace& m, std::uint64_t sample) {
  const std::uint64_t step = m.scalars == nullptr ? m.step : m.scalars->step;
  std::uint64_t stream = isa::with_part<MaskTag>(isa::kStreamStart, step);
  stream = isa::with_part<MaskTag>(stream, m.first_sample + sample);
  return isa::with_part<MaskTag>(stream, m.site);
}

SLUICE_BODY StreamPlace stream_place(const MaskPlace& m, std::int64_t i) {
  const auto at = static_cast<std::uint64_t>(m.first + i);
  const auto per_sample = static_cast<std::uint64_t>(m.per_sample);
  const std::uint64_t sample = at / per_sample;
  return {sample_stream(m, sample), m.offset + static_cast<std::int64_t>(at - sample * per_sample)};
}

struct MaskWords {
  std::uint32_t of[4];
};

// The random words of the stream's elements [4 block, 4 block + 4).
SLUICE_BODY MaskWords mask_words(const MaskPlace& m, std::uint64_t stream, std::uint64_t block) {
  MaskWords x{{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
               static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}};
  isa::philox_rounds<MaskTag>(x.of[0], x.of[1], x.of[2], x.of[3],
                              static_cast<std::uint32_t>(m.seed),
                              static_cast<std::uint32_t>(m.seed >> 32));
  return x;
}

// The four factors of a block: 0 or keep.
SLUICE_BODY void mask_block(const MaskPlace& m, std::uint64_t stream, std::uint64_t block,
                            float (&factor)[4]) {
  const MaskWords x = mask_words(m, stream, block);
  for (int k = 0; k < 4; ++k) factor[k] = x.of[k] >= m.threshold ? m.keep : 0.0F;
}

// Multiplies the elements of a pack, from element i on, by their factors. If the pack lies in one
// sample and begins at a block of the stream, one block serves four elements. Otherwise each
// element computes a block of its own.
template <class T>
SLUICE_BODY void drop_pack(const MaskPlace& m, std::int64_t i, std::int64_t n, Pack<T>& pack) {
  constexpr int kSize = Pack<T>::kSize;
  const StreamPlace first = stream_place(m, i);
  const std::int64_t count = n < kSize ? n : kSize;
  const bool whole = first.element % 4 == 0 && first.element - m.offset + count <= m.per_sample;
  for (int j = 0; j < kSize; j += 4) {
    float factor[4];
    if (whole) {
      mask_block(m, first.stream, static_cast<std::uint64_t>(first.element + j) / 4, factor);
      for (int k = 0; k < 4; ++k) pack.v[j + k] *= factor[k];
      continue;
    }
    for (int k = 0; k < 4; ++k) {
      if (j + k >= count) continue;
      const StreamPlace at = stream_place(m, i + j + k);
      const auto element = static_cast<std::uint64_t>(at.element);
      mask_block(m, at.stream, element / 4, factor);
      const std::uint64_t word = element % 4;
      pack.v[j + k] *= word == 0   ? factor[0]
                       : word == 1 ? factor[1]
                       : word == 2 ? factor[2]
                                   : factor[3];
    }
  }
}

template <class T>
SLUICE_BODY void branch_body(const BranchArgs& a, std::int64_t row, const Worker& worker,
                             bool aligned) {
  const T* bias = static_cast<const T*>(a.bias);
  const T* residual = static_cast<const T*>(a.residual);
  for_packs<T>(a.columns, worker, aligned, [&](std::int64_t column, std::int64_t n, bool aligned) {
    const std::int64_t i = row * a.columns + column;
    const bool whole = aligned && n >= Pack<T>::kSize;
    RawPack<T> raw;  // of the residual, in flight while the bias and the mask are applied
    if (residual != nullptr && whole) load_raw(residual + i, &raw);
    Pack<T> value = load_pack(static_cast<const T*>(a.x) + i, n, aligned);
    if (bias != nullptr) {
      const Pack<T> b = load_pack(bias + column, n, aligned);
      for (int j = 0; j < Pack<T>::kSize; ++j) value.v[j] += b.v[j];
    }
    if (a.mask.threshold > 0) drop_pack(a.mask, i, n, value);
    if (residual != nullptr) {
      const Pack<T> r = whole ? widen(raw) : load_pack(residual + i, n, false);
      for (int j = 0; j < Pack<T>::kSize; ++j) value.v[j] = r.v[j] + value.v[j];
    }
    store_pack(static_cast<T*>(a.out) + i, value, n, aligned);
  });
}

}  // namespace sluice::cuda
