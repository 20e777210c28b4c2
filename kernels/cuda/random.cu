// The streams of kernels/cpu/philox.hpp. One thread computes one block of four elements.
#include "kernels/cpu/dropout_threshold.hpp"
#include "kernels/cpu/philox_core.hpp"
#include "kernels/cuda/device_types.cuh"

namespace sluice::cuda {
namespace {

struct DeviceTag;

struct Range {
  std::uint64_t seed, stream, first;
  std::int64_t n;
};

// Calls write(index in the output, index in the block, words) for the block's elements in range.
template <class Write>
__device__ void for_each_element(const Range& r, Write write) {
  const std::uint64_t first_block = r.first / 4;
  const std::uint64_t end = r.first + static_cast<std::uint64_t>(r.n);
  for (std::uint64_t block = first_block + static_cast<std::uint64_t>(first_index());
       block * 4 < end; block += static_cast<std::uint64_t>(index_stride())) {
    std::uint32_t w[4] = {
        static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
        static_cast<std::uint32_t>(r.stream), static_cast<std::uint32_t>(r.stream >> 32)};
    isa::philox_rounds<DeviceTag>(w[0], w[1], w[2], w[3], static_cast<std::uint32_t>(r.seed),
                                  static_cast<std::uint32_t>(r.seed >> 32));
    write.begin(w);
    for (int k = 0; k < 4; ++k) {
      const std::uint64_t element = block * 4 + static_cast<std::uint64_t>(k);
      if (element >= r.first && element < end) write.put(element - r.first, k);
    }
  }
}

struct WriteNormal {
  float* out;
  double mean, std;
  double z[4];

  __device__ void begin(const std::uint32_t (&w)[4]) {
    isa::box_muller<DeviceTag>(w[0], w[1], z[0], z[1]);
    isa::box_muller<DeviceTag>(w[2], w[3], z[2], z[3]);
  }
  __device__ void put(std::uint64_t place, int k) {
    out[place] = static_cast<float>(fma(z[k], std, mean));
  }
};

struct WriteMask {
  std::uint8_t* out;
  std::uint64_t threshold;
  std::uint32_t words[4];

  __device__ void begin(const std::uint32_t (&w)[4]) {
    for (int k = 0; k < 4; ++k) words[k] = w[k];
  }
  __device__ void put(std::uint64_t place, int k) { out[place] = words[k] >= threshold ? 1 : 0; }
};

template <class Write>
__global__ void fill_kernel(Range range, Write write) {
  for_each_element(range, write);
}

}  // namespace

void launch_fill_normal(float* out, std::int64_t n, std::uint64_t seed, std::uint64_t seed_stream,
                        std::int64_t first_element, float mean, float std, StreamRef stream) {
  if (n <= 0) return;
  const Range range{seed, seed_stream, static_cast<std::uint64_t>(first_element), n};
  fill_kernel<<<blocks_for(n / 4 + 2), kThreads, 0, native(stream)>>>(
      range, WriteNormal{out, mean, std, {}});
  check_launch("fill_normal");
}

void launch_dropout_mask(std::uint8_t* keep, std::int64_t n, std::uint64_t seed,
                         std::uint64_t seed_stream, std::int64_t first_element, double p,
                         StreamRef stream) {
  if (n <= 0) return;
  const Range range{seed, seed_stream, static_cast<std::uint64_t>(first_element), n};
  fill_kernel<<<blocks_for(n / 4 + 2), kThreads, 0, native(stream)>>>(
      range, WriteMask{keep, dropout_threshold(p), {}});
  check_launch("dropout_mask");
}

}  // namespace sluice::cuda
