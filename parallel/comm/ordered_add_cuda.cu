#include "kernels/cuda/device_types.cuh"
#include "parallel/comm/ordered_add_body.hpp"
#include "parallel/comm/ordered_add_cuda.hpp"

namespace sluice {
namespace {

template <class T>
__global__ void __launch_bounds__(kAddThreads)
    ordered_add_kernel(const __grid_constant__ AddTable table) {
  for (std::int64_t chunk = blockIdx.x; chunk < table.chunks; chunk += gridDim.x) {
    add_body<T>(table, chunk, static_cast<int>(threadIdx.x));
  }
}

void launch(const AddTable& table, cuda::StreamRef stream) {
  if (table.count == 0) return;
  const unsigned blocks = cuda::blocks_for(table.chunks * kAddThreads);
  cuda::with_device_dtype(table.shares.dtype, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    ordered_add_kernel<T><<<blocks, kAddThreads, 0, cuda::native(stream)>>>(table);
  });
  cuda::check_launch("ordered_add_kernel");
}

}  // namespace

void ordered_add_cuda(const CudaAddSegment* segments, int count, const CudaShares& shares,
                      cuda::StreamRef stream) {
  AddTable table{};
  table.shares = shares;
  for (int i = 0; i < count; ++i) {
    if (segments[i].elems == 0) continue;
    if (table.count == kAddsOfLaunch) {
      launch(table, stream);
      table.count = 0;
      table.chunks = 0;
    }
    append(table, segments[i]);
  }
  launch(table, stream);
}

}  // namespace sluice
