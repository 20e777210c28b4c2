// Ranges of random numbers, as templates over a back end S. After the random words come plain loops
// over batches, which the compiler vectorises for the instruction set of the file.
#pragma once

#include <cstdint>

#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/philox_core.hpp"

namespace sluice::isa {

inline constexpr int kBatchBlocks = 16;
inline constexpr int kBatch = 4 * kBatchBlocks;  // elements; batches begin at multiples of kBatch

// Words of the blocks [block, block + 16): word k of block b is w[k][b]. REQUIRES: block is a
// multiple of 16.
template <class S>
void philox_batch(std::uint32_t (&w)[4][kBatchBlocks], const PhiloxRange& range,
                  std::uint64_t block) {
  // A multiple of 16 plus a lane number never carries into the high word.
  auto x0 = S::uadd(S::uset1(static_cast<std::uint32_t>(block)), S::ulane());
  auto x1 = S::uset1(static_cast<std::uint32_t>(block >> 32));
  auto x2 = S::uset1(static_cast<std::uint32_t>(range.stream));
  auto x3 = S::uset1(static_cast<std::uint32_t>(range.stream >> 32));
  std::uint32_t k0 = static_cast<std::uint32_t>(range.seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(range.seed >> 32);
  for (int round = 0; round < 10; ++round) {  // philox_rounds.hpp, 16 blocks at a time
    const auto a = S::umul_wide(x0, 0xD2511F53U);
    const auto b = S::umul_wide(x2, 0xCD9E8D57U);
    x0 = S::uxor(S::uxor(b.high, x1), S::uset1(k0));
    x1 = b.low;
    x2 = S::uxor(S::uxor(a.high, x3), S::uset1(k1));
    x3 = a.low;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  S::ustore(w[0], x0);
  S::ustore(w[1], x1);
  S::ustore(w[2], x2);
  S::ustore(w[3], x3);
}

// Calls make(T (&values)[kBatch], words) for every batch that overlaps the range, and copies the
// part inside the range to `out`.
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
