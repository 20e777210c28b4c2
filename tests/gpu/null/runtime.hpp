// What the sources of the null CUDA runtime share.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace null_gpu {

// Of the calling thread.
[[nodiscard]] int current_device();
// The call makes the context of the thread's card, if there is none.
void need_context();
// The card on which the stream was made; of the default streams the thread's.
[[nodiscard]] int device_of_stream(const void* stream);
// Keeps the error for cudaGetLastError(), and returns it.
cudaError_t remembered(cudaError_t error);
// Counts a fault and returns cudaErrorInvalidValue.
cudaError_t refused(const std::string& what);

}  // namespace null_gpu
