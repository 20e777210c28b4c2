// Registered memory of the host, which a GPU reads and writes.
#include <cuda_runtime_api.h>

#include <new>

#include "tests/kernels/cuda_runs.hpp"

namespace sluice::testing {

void* take_memory(std::size_t bytes) {
  void* memory = nullptr;
  if (cudaMallocHost(&memory, bytes) != cudaSuccess) throw std::bad_alloc();
  return memory;
}
void give_memory(void* memory) noexcept { (void)cudaFreeHost(memory); }

}  // namespace sluice::testing
