// A status of the CUDA runtime as an exception.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/error.hpp"

namespace sluice {

// "copying 4096 bytes from GPU 0 to the host: an illegal memory access was encountered". The
// runtime's last error is cleared, so that no later call finds it.
inline void check_cuda(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw Error(what + ": " + cudaGetErrorString(status));
}

}  // namespace sluice
