// Sum of squares in two passes. The partition into kParts parts is fixed, so the order of additions
// depends on n alone.
#include "kernels/cuda/block_reduce.cuh"
#include "kernels/cuda/device_types.cuh"

namespace sluice::cuda {
namespace {

constexpr int kParts = 1024;

template <class T>
__global__ void parts_kernel(double* parts, const T* x, std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t i = first_index(); i < n; i += index_stride()) {
    const double value = widen(x[i]);
    sum = __fma_rn(value, value, sum);
  }
  sum = block_reduce<kThreads>(sum, Add{});
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void total_kernel(double* result, const double* parts) {
  double sum = 0.0;
  for (int i = static_cast<int>(threadIdx.x); i < kParts; i += kThreads) sum += parts[i];
  sum = block_reduce<kThreads>(sum, Add{});
  if (threadIdx.x == 0) *result = sum;
}

}  // namespace

std::int64_t sum_squares_workspace() { return kParts; }

void launch_sum_squares(double* result, double* workspace, const void* x, DType dtype,
                        std::int64_t n, StreamRef stream) {
  with_device_dtype(dtype, [&](auto* in) {
    using T = std::remove_pointer_t<decltype(in)>;
    parts_kernel<<<kParts, kThreads, 0, native(stream)>>>(workspace, static_cast<const T*>(x), n);
  });
  total_kernel<<<1, kThreads, 0, native(stream)>>>(result, workspace);
  check_launch("sum_squares");
}

}  // namespace sluice::cuda
