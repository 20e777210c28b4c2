// Rotary positions of one token in place, with the bits of kernels/cpu (isa/rms_impl.hpp).
#pragma once

#include "kernels/cuda/block_args.hpp"
#include "kernels/cuda/elements.hpp"

namespace sluice::cuda {

// The worker's packs are those of all heads' first halves, one head after another.
template <class T>
SLUICE_BODY void rope_body(const RopeTokens& tokens, std::int64_t row, const Worker& worker,
                           bool aligned) {
  constexpr std::int64_t kSize = Pack<T>::kSize;
  const RopeArgs& a = tokens.at;
  const std::int64_t half = a.head_dim / 2;
  const std::int64_t packs = (half + kSize - 1) / kSize;
  const float sign = a.back ? -1.0F : 1.0F;
  const std::int64_t position = tokens.positions == nullptr ? row % a.seq : tokens.positions[row];
  const float* cos = a.cos + position * half;
  const float* sin = a.sin + position * half;
  T* x = static_cast<T*>(a.x) + row * a.stride;
  for (std::int64_t pack = worker.index; pack < a.heads * packs; pack += worker.count) {
    const auto head = static_cast<std::int64_t>(static_cast<std::uint32_t>(pack) /
                                                static_cast<std::uint32_t>(packs));
    const std::int64_t i = (pack - head * packs) * kSize;
    const std::int64_t n = half - i;
    T* first = x + head * a.head_dim + i;
    Pack<T> p = load_pack(first, n, aligned);
    Pack<T> q = load_pack(first + half, n, aligned);
    for (int j = 0; j < kSize; ++j) {
      const float c = j < n ? cos[i + j] : 0.0F;
      const float s = j < n ? sin[i + j] * sign : 0.0F;
      const float turned = p.v[j] * c - q.v[j] * s;
      q.v[j] = q.v[j] * c + p.v[j] * s;
      p.v[j] = turned;
    }
    store_pack(first, p, n, aligned);
    store_pack(first + half, q, n, aligned);
  }
}

}  // namespace sluice::cuda
