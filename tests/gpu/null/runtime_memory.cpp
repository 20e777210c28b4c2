// The CUDA runtime's memory: allocation, copies, sets.
//
// Which bytes are really copied. Kernels compute nothing, so the content of most memory is zeros
// and stays so. Scalars decide what the program does next (norm, loss, votes, finiteness), so
// copies up to kCopied bytes are made. A larger copy to the host sets zeros: what a kernel would
// have written is not known, and old bytes could read as NaN. A larger copy to or on the device is
// left out.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstring>
#include <string>

#include "tests/gpu/null/graphs.hpp"
#include "tests/gpu/null/memory.hpp"
#include "tests/gpu/null/queue.hpp"
#include "tests/gpu/null/record.hpp"
#include "tests/gpu/null/runtime.hpp"

namespace null_gpu {
namespace {

constexpr std::size_t kCopied = std::size_t{1} << 16;

bool fits(cudaMemcpyKind kind, Direction direction) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return direction == Direction::kHostToDevice;
    case cudaMemcpyDeviceToHost:
      return direction == Direction::kDeviceToHost;
    case cudaMemcpyDeviceToDevice:
      return direction == Direction::kDeviceToDevice;
    case cudaMemcpyHostToHost:
      return direction == Direction::kHostToHost;
    default:
      return kind == cudaMemcpyDefault;
  }
}

Direction direction_of(Place to, Place from) {
  const bool to_device = to == Place::kDevice, from_device = from == Place::kDevice;
  if (to_device) return from_device ? Direction::kDeviceToDevice : Direction::kHostToDevice;
  return from_device ? Direction::kDeviceToHost : Direction::kHostToHost;
}

void move_bytes(void* to, const void* from, std::size_t bytes, Direction direction) {
  const bool to_device =
      direction == Direction::kHostToDevice || direction == Direction::kDeviceToDevice;
  const bool from_device =
      direction == Direction::kDeviceToHost || direction == Direction::kDeviceToDevice;
  if (computes() || bytes <= kCopied || direction == Direction::kHostToHost) {
    std::memmove(to_device ? bytes_behind(to) : to, from_device ? bytes_behind(from) : from, bytes);
  } else if (direction == Direction::kDeviceToHost) {
    std::memset(to, 0, bytes);
  }
}

cudaError_t copied(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                   const void* stream) {
  const Place to_place = place_of(to), from_place = place_of(from);
  const Direction direction = direction_of(to_place, from_place);
  if (!fits(kind, direction)) {
    return refused("a copy of " + std::to_string(bytes) + " bytes of kind " + std::to_string(kind) +
                   " is between other places than it says");
  }
  if ((to_place == Place::kDevice && !is_device_range(to, bytes)) ||
      (from_place == Place::kDevice && !is_device_range(from, bytes))) {
    return refused("a copy of " + std::to_string(bytes) + " bytes leaves its block of the device");
  }
  const Place host = to_place == Place::kDevice ? from_place : to_place;
  const bool crosses =
      direction == Direction::kHostToDevice || direction == Direction::kDeviceToHost;
  count_copy({direction, bytes, crosses && host == Place::kPageable, has_open_work(stream)});
  move_bytes(to, from, bytes, direction);
  return cudaSuccess;
}

cudaError_t set(void* to, int value, std::size_t bytes, const void* stream) {
  if (bytes == 0) return cudaSuccess;
  if (recorded(stream, [=] { (void)set(to, value, bytes, cudaStreamPerThread); }))
    return cudaSuccess;
  count_work(Work::kMemset, stream);
  if (!is_device_range(to, bytes)) {
    return refused("a memset of " + std::to_string(bytes) + " bytes outside of device memory");
  }
  if (computes() || bytes <= kCopied) std::memset(bytes_behind(to), value, bytes);
  return cudaSuccess;
}

}  // namespace
}  // namespace null_gpu

using namespace null_gpu;  // NOLINT: this file is bodies of C functions

extern "C" {

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  *pointer = take_device(current_device(), bytes);
  return *pointer == nullptr ? remembered(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr || give_device(pointer)) return cudaSuccess;
  return refused("cudaFree of memory that is not a live allocation");
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = device_bytes_free(current_device());
  *total = device_bytes_total();
  return cudaSuccess;
}

// Zeros, as fresh pages are.
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  *pointer = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*pointer == MAP_FAILED) return remembered(cudaErrorMemoryAllocation);
  note_pinned(*pointer, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  const std::size_t bytes = forget_pinned(pointer);
  if (bytes == 0) return refused("cudaFreeHost of memory that is not a live allocation");
  ::munmap(pointer, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned) {
  if (place_of(pointer) != Place::kPageable) {
    return refused("cudaHostRegister of memory that is registered already");
  }
  note_pinned(pointer, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  if (forget_pinned(pointer) > 0) return cudaSuccess;
  return refused("cudaHostUnregister of memory that is not registered");
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  std::memset(attributes, 0, sizeof *attributes);
  const Place place = place_of(pointer, &attributes->device);
  attributes->type = place == Place::kDevice   ? cudaMemoryTypeDevice
                     : place == Place::kPinned ? cudaMemoryTypeHost
                                               : cudaMemoryTypeUnregistered;
  attributes->devicePointer = attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return cudaSuccess;
  count_work(Work::kCopy, nullptr);
  count_wait(Wait::kBlockingCopy);
  return copied(to, from, bytes, kind, nullptr);
}

// A copy to pageable memory returns after the copy: the host waits.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (is_capturing(stream) &&
      (place_of(to) == Place::kPageable || place_of(from) == Place::kPageable)) {
    return refused("a graph with a copy of pageable memory");
  }
  // A graph's own copy is on no stream.
  if (recorded(stream,
               [=] { (void)cudaMemcpyAsync(to, from, bytes, kind, cudaStreamPerThread); })) {
    return cudaSuccess;
  }
  count_work(Work::kCopy, stream);
  if (place_of(to) == Place::kPageable && place_of(from) == Place::kDevice) {
    count_wait(Wait::kBlockingCopy);
  }
  return copied(to, from, bytes, kind, stream);
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return set(to, value, bytes, nullptr);
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return set(to, value, bytes, stream);
}

// One block stands for every variable of device code.
cudaError_t cudaGetSymbolAddress(void** pointer, const void*) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  static void* const memory = take_device(0, kBytes);
  *pointer = memory;
  return memory == nullptr ? remembered(cudaErrorMemoryAllocation) : cudaSuccess;
}

}  // extern "C"
