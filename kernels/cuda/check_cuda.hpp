// Turns a status of the CUDA runtime into an exception.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/error.hpp"

namespace sluice {

// Throws Error such as "copying 4096 bytes from GPU 0 to the host: an illegal memory access was
// encountered", and BudgetError where the card is full. Clears the runtime's last error, so that no
// later call reports it again.
inline void check_cuda(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  if (status == cudaErrorMemoryAllocation) {
    throw BudgetError(what + ": " + cudaGetErrorString(status) +
                      "; stop other programs on the card, or lower train.micro_batch");
  }
  throw Error(what + ": " + cudaGetErrorString(status));
}

}  // namespace sluice
