#include <cuda_runtime_api.h>

#include <string>

#include "base/error.hpp"
#include "kernels/cuda/check_cuda.hpp"

namespace sluice::cuda {

void check_launch(const char* kernel) {
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return;
  const std::string what = "CUDA kernel " + std::string(kernel) + " could not be started";
  if (status == cudaErrorMemoryAllocation) check_cuda(status, what);
  throw Error(what + ": " + cudaGetErrorString(status) +
              "; `sluice doctor` shows what this GPU and driver support");
}

void check_argument(bool valid, const char* message) { check(valid, message); }

}  // namespace sluice::cuda
