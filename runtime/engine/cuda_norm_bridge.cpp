// Sums of squares for the gradient norm, in the CUDA module. Compiled; not yet run on a GPU.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "kernels/cuda/check_cuda.hpp"
#include "kernels/cuda/sum_squares.hpp"
#include "runtime/engine/cuda_errors.hpp"
#include "runtime/engine/tiers/cuda_tiers.hpp"

namespace sluice {
namespace {

// Memory of one thread that the kernels and the copy of the sums use. It is kept, and outside of
// libtorch's allocator: a block there in the middle of a step would leave holes that no large
// tensor of the next step fits in. 8 bytes for 4096 elements of a rank's gradients.
class Workspace {
 public:
  Workspace() = default;
  ~Workspace() {
    (void)cudaFree(device_);
    (void)cudaFreeHost(host_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Of the current device.
  void grow(std::int64_t device_doubles, std::int64_t host_doubles) {
    if (device_doubles > device_doubles_) {
      check_cuda(cudaFree(std::exchange(device_, nullptr)), "freeing the norm's memory");
      check_cuda(cudaMalloc(&device_, bytes(device_doubles)), "memory for sums of squares");
      device_doubles_ = device_doubles;
    }
    if (host_doubles > host_doubles_) {
      check_cuda(cudaFreeHost(std::exchange(host_, nullptr)), "freeing the norm's memory");
      check_cuda(cudaHostAlloc(&host_, bytes(host_doubles), cudaHostAllocDefault),
                 "registered memory for sums of squares");
      host_doubles_ = host_doubles;
    }
  }
  [[nodiscard]] double* device() const { return static_cast<double*>(device_); }
  [[nodiscard]] double* host() const { return static_cast<double*>(host_); }
  static std::size_t bytes(std::int64_t doubles) {
    return static_cast<std::size_t>(doubles) * sizeof(double);
  }

 private:
  void* device_ = nullptr;
  void* host_ = nullptr;
  std::int64_t device_doubles_ = 0;
  std::int64_t host_doubles_ = 0;
};

// The sums come by one copy to registered memory, so the host waits once. A rank's thread has one
// GPU.
void sum_squares_on(c10::DeviceIndex device, const cuda::SquaresSpan* spans, int count,
                    double* sums) {
  static thread_local Workspace workspace;
  const c10::cuda::CUDAGuard guard(device);
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device);
  const std::int64_t scratch = cuda::squares_scratch(spans, count);
  workspace.grow(scratch + count, count);
  double* const on_device = workspace.device();
  cuda::launch_sum_squares(spans, count, on_device, on_device + scratch, {stream.stream()});
  check_cuda(cudaMemcpyAsync(workspace.host(), on_device + scratch, Workspace::bytes(count),
                             cudaMemcpyDeviceToHost, stream.stream()),
             "copying the sums of squares to the host");
  check_cuda(cudaStreamSynchronize(stream.stream()), "summing the squares of gradients");
  std::copy_n(workspace.host(), count, sums);
}

}  // namespace
}  // namespace sluice

extern "C" __attribute__((visibility("default"))) void sluice_cuda_sum_squares(
    const sluice::cuda::SquaresSpan* spans, int count, double* sums, int device) {
  sluice::translated("the gradient norm on GPU " + std::to_string(device), [&] {
    sluice::sum_squares_on(static_cast<c10::DeviceIndex>(device), spans, count, sums);
  });
}
