// Ranges of random numbers, for a back end S. Plain loops over batches, which the compiler turns
// into vector code of the file's instruction set; S only names the instance.
#pragma once

#include <cstdint>

#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/philox_core.hpp"

namespace sluice::isa {

inline constexpr int kBatchBlocks = 16;
inline constexpr int kBatch = 4 * kBatchBlocks;  // elements; batches begin at its multiples

// Words of the blocks [block, block + 16): word k of block b is w[k][b].
template <class S>
void philox_batch(std::uint32_t (&w)[4][kBatchBlocks], const PhiloxRange& range,
                  std::uint64_t block) {
  const std::uint32_t k0 = static_cast<std::uint32_t>(range.seed);
  const std::uint32_t k1 = static_cast<std::uint32_t>(range.seed >> 32);
  for (int b = 0; b < kBatchBlocks; ++b) {
    const std::uint64_t counter = block + static_cast<std::uint64_t>(b);
    w[0][b] = static_cast<std::uint32_t>(counter);
    w[1][b] = static_cast<std::uint32_t>(counter >> 32);
    w[2][b] = static_cast<std::uint32_t>(range.stream);
    w[3][b] = static_cast<std::uint32_t>(range.stream >> 32);
    philox_rounds<S>(w[0][b], w[1][b], w[2][b], w[3][b], k0, k1);
  }
}

// make(T (&values)[kBatch], words) for every batch that meets the range; the part inside goes to
// out.
template <class S, class T, class Make>
void fill_batches(T* out, const PhiloxRange& range, Make make) {
  std::int64_t done = 0;
  while (done < range.n) {
    const std::uint64_t element = range.first + static_cast<std::uint64_t>(done);
    const int offset = static_cast<int>(element % kBatch);
    std::uint32_t words[4][kBatchBlocks];
    T values[kBatch];
    philox_batch<S>(words, range, (element - static_cast<std::uint64_t>(offset)) / 4);
    make(values, words);
    const std::int64_t room = kBatch - offset;
    const std::int64_t count = range.n - done < room ? range.n - done : room;
    for (std::int64_t i = 0; i < count; ++i) out[done + i] = values[offset + i];
    done += count;
  }
}

template <class S>
void fill_normal(float* out, const PhiloxRange& range, float mean, float std) {
  const double center = mean;
  const double spread = std;
  fill_batches<S>(out, range, [=](float(&values)[kBatch], std::uint32_t(&w)[4][kBatchBlocks]) {
    double z[4][kBatchBlocks];
    for (int half = 0; half < 4; half += 2) {
      for (int b = 0; b < kBatchBlocks; ++b) {
        box_muller<S>(w[half][b], w[half + 1][b], z[half][b], z[half + 1][b]);
      }
    }
    for (int b = 0; b < kBatchBlocks; ++b) {
      for (int k = 0; k < 4; ++k) {
        values[4 * b + k] = static_cast<float>(::fma(z[k][b], spread, center));
      }
    }
  });
}

template <class S, class T>
void fill_mask(T* out, const PhiloxRange& range, std::uint64_t threshold, T keep) {
  fill_batches<S>(out, range, [=](T(&values)[kBatch], std::uint32_t(&w)[4][kBatchBlocks]) {
    for (int b = 0; b < kBatchBlocks; ++b) {
      for (int k = 0; k < 4; ++k) values[4 * b + k] = w[k][b] >= threshold ? keep : T{0};
    }
  });
}

template <class S>
void fill_mask_bytes(std::uint8_t* out, const PhiloxRange& range, std::uint64_t threshold) {
  fill_mask<S, std::uint8_t>(out, range, threshold, 1);
}

template <class S>
void fill_mask_floats(float* out, const PhiloxRange& range, std::uint64_t threshold, float keep) {
  fill_mask<S, float>(out, range, threshold, keep);
}

}  // namespace sluice::isa
