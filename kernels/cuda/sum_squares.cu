// One warp sums a block of kSumBlock values, then one thread block a span adds the blocks pairwise:
// the order of kernels/cpu/reduce.cpp.
#include "kernels/cpu/reduce.hpp"
#include "kernels/cuda/device_types.cuh"
#include "kernels/cuda/step_clip.hpp"
#include "kernels/cuda/sum_squares.hpp"
#include "kernels/cuda/sum_squares_lanes.hpp"

namespace sluice::cuda {
namespace {

constexpr int kSpansOfLaunch = 128;  // 3 KiB of the 4 KiB that a kernel's arguments may take
constexpr int kWarps = kThreads / kSquareLanes;

struct Span {
  const void* values;
  std::int64_t elems;
  std::int32_t first;  // of its blocks in the scratch memory
  bool is_bf16;
};

struct Spans {
  Span at[kSpansOfLaunch];
  int count;
  std::int64_t blocks;
};

std::int64_t blocks_of(const SquaresSpan& span) { return (span.elems + kSumBlock - 1) / kSumBlock; }

__global__ void sum_squares_blocks(Spans spans, double* scratch) {
  const int lane = static_cast<int>(threadIdx.x) % kSquareLanes;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps;
  std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kSquareLanes;
  for (; block < spans.blocks; block += step) {
    const Span& span = spans.at[row_of(spans.at, spans.count, block)];
    const std::int64_t begin = (block - span.first) * kSumBlock;
    const std::int64_t left = span.elems - begin;
    const std::int64_t n = left < kSumBlock ? left : kSumBlock;
    double sum = span.is_bf16
                     ? lane_squares(static_cast<const Bf16*>(span.values) + begin, n, lane)
                     : lane_squares(static_cast<const float*>(span.values) + begin, n, lane);
    for (int half = kSquareLanes / 2; half > 0; half /= 2) {
      sum += __shfl_down_sync(0xffffffffU, sum, half);
    }
    if (lane == 0) scratch[block] = sum;
  }
}

// Neighbours, then neighbouring pairs, and so on: the tree of pairwise_sum().
__global__ void sum_squares_pairs(Spans spans, double* scratch, double* sums) {
  const Span& span = spans.at[blockIdx.x];
  const std::int64_t count = (span.elems + kSumBlock - 1) / kSumBlock;
  double* const values = scratch + span.first;
  for (std::int64_t apart = 1; apart < count; apart *= 2) {
    for (std::int64_t i = 2 * apart * threadIdx.x; i + apart < count; i += 2 * apart * blockDim.x) {
      values[i] += values[i + apart];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = count > 0 ? values[0] : 0.0;
}

__global__ void step_clip(StepSums of, ClipInput in, StepClip* out) {
  *out = decide_step(of.sums, of.count, of.losses, of.micro_batches, in);
}

}  // namespace

std::int64_t squares_scratch(const SquaresSpan* spans, int count) {
  std::int64_t blocks = 0;
  for (int i = 0; i < count; ++i) blocks += blocks_of(spans[i]);
  return blocks;
}

void launch_sum_squares(const SquaresSpan* spans, int count, double* scratch, double* sums,
                        StreamRef stream) {
  for (int begin = 0; begin < count; begin += kSpansOfLaunch) {
    Spans part{};
    part.count = count - begin < kSpansOfLaunch ? count - begin : kSpansOfLaunch;
    for (int i = 0; i < part.count; ++i) {
      const SquaresSpan& span = spans[begin + i];
      const bool is_bf16 = span.dtype == DType::kBFloat16;
      check_argument(is_bf16 || span.dtype == DType::kFloat32, "squares are of fp32 or bf16");
      part.at[i] = {span.values, span.elems, static_cast<std::int32_t>(part.blocks), is_bf16};
      part.blocks += blocks_of(span);
    }
    if (part.blocks > 0) {
      const unsigned grid = blocks_for(part.blocks * kSquareLanes);
      sum_squares_blocks<<<grid, kThreads, 0, native(stream)>>>(part, scratch);
      check_launch("sum_squares_blocks");
    }
    sum_squares_pairs<<<static_cast<unsigned>(part.count), kThreads, 0, native(stream)>>>(
        part, scratch, sums + begin);
    check_launch("sum_squares_pairs");
    scratch += part.blocks;
  }
}

void launch_step_clip(const StepSums& of, const ClipInput& in, StepClip* out, StreamRef stream) {
  step_clip<<<1, 1, 0, native(stream)>>>(of, in, out);
  check_launch("step_clip");
}

}  // namespace sluice::cuda
