// Turns a status of the CUDA runtime into an exception.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/error.hpp"

namespace sluice {

// Throws Error such as "copying 4096 bytes from GPU 0 to the host: an illegal memory access was
// encountered". Clears the runtime's last error, so that no later call reports it again.
inline void check_cuda(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw Error(what + ": " + cudaGetErrorString(status));
}

}  // namespace sluice
