// One block per row: largest logit, sum of exponentials, gradient. The block size fixes the order
// of additions, so the bits are reproducible, but differ from kernels/cpu.
#include "kernels/cuda/block_reduce.cuh"
#include "kernels/cuda/device_types.cuh"

namespace sluice::cuda {
namespace {

constexpr int kRowThreads = 512;

// Writes the gradient of a row, given its largest logit and its sum of exponentials.
__device__ void write_gradient(const CrossEntropyArgs& a, float* x, std::int64_t target, float max,
                               double sum) {
  const double factor = a.scale / sum;
  for (std::int64_t j = threadIdx.x; j < a.width; j += kRowThreads) {
    if (j >= a.vocab) {
      x[j] = 0.0F;
      continue;
    }
    const float e = expf(x[j] - max);
    // p - 1 is computed in double: near p = 1 the fp32 difference has no correct digits.
    x[j] = j == target ? static_cast<float>((e / sum - 1.0) * a.scale)
                       : e * static_cast<float>(factor);
  }
}

__global__ void cross_entropy_kernel(CrossEntropyArgs a, double* losses) {
  const std::int64_t row = blockIdx.x;
  float* x = a.logits + row * a.row_stride;
  const std::int64_t target = a.targets[row];
  if (target < 0 || target >= a.vocab) {
    const float fill = target == kIgnoreTarget ? 0.0F : nanf("");
    for (std::int64_t j = threadIdx.x; j < a.width; j += kRowThreads) x[j] = fill;
    if (threadIdx.x == 0) losses[row] = fill;
    return;
  }
  const float target_logit = x[target];
  float max = -INFINITY;  // ignores a NaN; the sum then becomes NaN
  for (std::int64_t j = threadIdx.x; j < a.vocab; j += kRowThreads) max = fmaxf(max, x[j]);
  max = block_reduce<kRowThreads>(max, Max{});
  double sum = 0.0;
  for (std::int64_t j = threadIdx.x; j < a.vocab; j += kRowThreads) {
    sum += static_cast<double>(expf(x[j] - max));
  }
  sum = block_reduce<kRowThreads>(sum, Add{});
  if (threadIdx.x == 0) {
    losses[row] = log(sum) + (static_cast<double>(max) - static_cast<double>(target_logit));
  }
  write_gradient(a, x, target, max, sum);
}

}  // namespace

void launch_softmax_cross_entropy(const CrossEntropyArgs& args, double* losses, StreamRef stream) {
  if (args.rows <= 0) return;
  cross_entropy_kernel<<<static_cast<unsigned>(args.rows), kRowThreads, 0, native(stream)>>>(
      args, losses);
  check_launch("softmax_cross_entropy");
}

}  // namespace sluice::cuda
