// Memory of exactly its size, so that a sanitizer sees any step over its end. The emulated GPU
// takes it too.
#include <new>

#include "tests/kernels/cuda_runs.hpp"

namespace sluice::testing {

void* take_memory(std::size_t bytes) { return ::operator new (bytes, std::align_val_t{16}); }
void give_memory(void* memory) noexcept { ::operator delete (memory, std::align_val_t{16}); }

}  // namespace sluice::testing
