// The CUDA runtime's memory: allocation, copies, sets.
//
// Which bytes are really copied, unless the null GPU computes. Kernels compute nothing, so the
// content of most memory is zeros and stays so. Scalars decide what the program does next (norm,
// loss, votes, finiteness), so copies up to kCopied bytes are made. A larger copy to the host sets
// zeros: what a kernel would have written is not known, and old bytes could read as NaN. A larger
// copy to or on the device is left out.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/null/graphs.hpp"
#include "tests/gpu/null/memory.hpp"
#include "tests/gpu/null/queue.hpp"
#include "tests/gpu/null/record.hpp"
#include "tests/gpu/null/runtime.hpp"

namespace null_gpu {
namespace {

constexpr std::size_t kCopied = std::size_t{1} << 16;

struct CopyCall {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
  cudaMemcpyKind kind = cudaMemcpyDefault;
};

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

void move_bytes(const CopyCall& copy, Direction direction) {
  const auto& [to, from, bytes, kind] = copy;
  const bool to_device =
      direction == Direction::kHostToDevice || direction == Direction::kDeviceToDevice;
  const bool from_device =
      direction == Direction::kDeviceToHost || direction == Direction::kDeviceToDevice;
  if (bytes <= kCopied || direction == Direction::kHostToHost) {
    std::memmove(to_device ? bytes_behind(to) : to, from_device ? bytes_behind(from) : from, bytes);
  } else if (direction == Direction::kDeviceToHost) {
    std::memset(to, 0, bytes);
  }
}

// When the stream comes to the copy, both ends must still be what they were at the call.
void move_if_there(const CopyCall& copy, Place to_place, Place from_place) {
  const auto gone = [&](const void* address, Place place) {
    return place == Place::kDevice ? !is_device_range(address, copy.bytes)
                                   : place != place_of(address);
  };
  if (gone(copy.to, to_place) || gone(copy.from, from_place)) {
    fault("a copy of " + std::to_string(copy.bytes) +
          " bytes runs after its memory was freed or unregistered");
    return;
  }
  std::memmove(copy.to, copy.from, copy.bytes);
}

// Registered memory is read and written when the stream comes to the copy. Pageable memory is read
// now, as a driver stages it; where such memory is written, the host waits.
void enqueue_copy(const CopyCall& copy, const void* stream) {
  const Place to_place = place_of(copy.to), from_place = place_of(copy.from);
  if (from_place == Place::kPageable) {
    const auto* const bytes = static_cast<const char*>(copy.from);
    const auto staged = std::make_shared<std::vector<char>>(bytes, bytes + copy.bytes);
    enqueue(stream, [copy, staged, to_place] {
      move_if_there({copy.to, staged->data(), copy.bytes}, to_place, Place::kPageable);
      return true;
    });
  } else {
    enqueue(stream, [copy, to_place, from_place] {
      move_if_there(copy, to_place, from_place);
      return true;
    });
  }
  if (to_place == Place::kPageable) finish_stream(stream);
}

// Counted as work of one stream, done by another: a graph's own copy counts for no stream.
cudaError_t copied(const CopyCall& copy, const void* counted_on, const void* stream) {
  const auto& [to, from, bytes, kind] = copy;
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
  if ((to_place != Place::kDevice && !is_host_range(to, bytes)) ||
      (from_place != Place::kDevice && !is_host_range(from, bytes))) {
    return refused("a copy of " + std::to_string(bytes) +
                   " bytes is only partly of one registration");
  }
  const Place host = to_place == Place::kDevice ? from_place : to_place;
  const bool crosses =
      direction == Direction::kHostToDevice || direction == Direction::kDeviceToHost;
  count_copy({direction, bytes, crosses && host == Place::kPageable, has_open_work(counted_on)});
  if (computes()) {
    enqueue_copy(copy, stream);
  } else {
    move_bytes(copy, direction);
  }
  return cudaSuccess;
}

bool is_pageable(const CopyCall& copy) {
  return place_of(copy.to) == Place::kPageable || place_of(copy.from) == Place::kPageable;
}

// A copy to pageable memory returns after the copy: the host waits.
cudaError_t copied_async(const CopyCall& copy, const void* counted_on, const void* stream) {
  need_context();
  count_work(Work::kCopy, counted_on);
  if (place_of(copy.to) == Place::kPageable && place_of(copy.from) == Place::kDevice) {
    count_wait(Wait::kBlockingCopy);
  }
  return copied(copy, counted_on, stream);
}

struct Fill {
  void* to = nullptr;
  int value = 0;
  std::size_t bytes = 0;
};

cudaError_t filled(const Fill& fill, const void* counted_on, const void* stream) {
  count_work(Work::kMemset, counted_on);
  if (!is_device_range(fill.to, fill.bytes)) {
    return refused("a memset of " + std::to_string(fill.bytes) + " bytes outside of device memory");
  }
  if (!computes()) {
    if (fill.bytes <= kCopied) std::memset(bytes_behind(fill.to), fill.value, fill.bytes);
    return cudaSuccess;
  }
  enqueue(stream, [fill] {
    if (is_device_range(fill.to, fill.bytes)) {
      std::memset(fill.to, fill.value, fill.bytes);
    } else {
      fault("a memset of " + std::to_string(fill.bytes) + " bytes runs after its memory was freed");
    }
    return true;
  });
  return cudaSuccess;
}

cudaError_t set(const Fill& fill, const void* stream) {
  if (fill.bytes == 0) return cudaSuccess;
  const auto again = [fill](const void* launching) {
    (void)filled(fill, cudaStreamPerThread, launching);
  };
  return recorded(stream, again) ? cudaSuccess : filled(fill, stream, stream);
}

}  // namespace
}  // namespace null_gpu

using namespace null_gpu;  // NOLINT: this file is bodies of C functions

extern "C" {

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  need_context();
  *pointer = take_device(current_device(), bytes);
  return *pointer == nullptr ? remembered(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  need_context();
  finish_device();
  if (pointer == nullptr || give_device(pointer)) return cudaSuccess;
  return refused("cudaFree of memory that is not a live allocation");
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  need_context();
  *free = device_bytes_free(current_device());
  *total = device_bytes_total();
  return cudaSuccess;
}

// Zeros, as fresh pages are, unless the null GPU computes.
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  need_context();
  *pointer = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*pointer == MAP_FAILED) return remembered(cudaErrorMemoryAllocation);
  if (computes()) std::memset(*pointer, kPoison, bytes);
  note_pinned(*pointer, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  need_context();
  finish_device();
  const std::size_t bytes = forget_pinned(pointer);
  if (bytes == 0) return refused("cudaFreeHost of memory that is not a live allocation");
  ::munmap(pointer, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned) {
  need_context();
  if (place_of(pointer) != Place::kPageable || !is_host_range(pointer, bytes)) {
    return refused("cudaHostRegister of memory that is registered already");
  }
  note_pinned(pointer, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  need_context();
  finish_device();
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
  need_context();
  count_work(Work::kCopy, nullptr);
  count_wait(Wait::kBlockingCopy);
  const cudaError_t status = copied({to, from, bytes, kind}, nullptr, nullptr);
  const bool on_device = place_of(to) == Place::kDevice && place_of(from) == Place::kDevice;
  if (!on_device) finish_stream(nullptr);
  return status;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  const CopyCall copy{to, from, bytes, kind};
  if (is_capturing(stream) && is_pageable(copy)) {
    return refused("a graph with a copy of pageable memory");
  }
  const auto again = [copy](const void* launching) {
    if (is_pageable(copy)) fault("a graph's copy of host memory that is not registered any more");
    (void)copied_async(copy, cudaStreamPerThread, launching);
  };
  return recorded(stream, again) ? cudaSuccess : copied_async(copy, stream, stream);
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return set({to, value, bytes}, nullptr);
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return set({to, value, bytes}, stream);
}

// One block stands for every variable of device code.
cudaError_t cudaGetSymbolAddress(void** pointer, const void*) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  static void* const memory = take_device(0, kBytes);
  *pointer = memory;
  return memory == nullptr ? remembered(cudaErrorMemoryAllocation) : cudaSuccess;
}

}  // extern "C"
