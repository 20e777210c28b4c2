// The persistent blocks of a rank's device tier: parameters, gradients, states, the arena.
//
// On the host a block does not come from libtorch's allocator. The calling thread takes every page
// at creation, on its own memory node, so no step waits for the kernel to find and clear pages.
//
//   a block that only this rank reads   private, huge pages where the kernel has them (THP madvise
//                                       or always); the tail that fills none is of small pages
//   a block of which collectives send   the same, or where the communicator reads its peers' memory
//                                       in place: HostMemory (huge pages by shmem_enabled)
//
// On other devices a block is a tensor of libtorch's allocator. Host blocks count with exactly the
// requested bytes (counting_allocator.hpp). The kernel rounds each block up to a page.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sluice {

enum class BlockUse {
  kOwn,         // states, scratch
  kCollective,  // an input of collectives
};

// The source of blocks; a value. Tensors own the blocks. Thread-safe.
class DeviceMemory {
 public:
  // `peers_map`: maps_host_memory of the Communicator that sends from the blocks.
  DeviceMemory(at::Device device, bool peers_map) : device_(device), peers_map_(peers_map) {}

  // Zeroed tensor [elems] of `type`; all pages are taken. The tensor's storage owns the memory.
  // Throws IoError if the machine does not have the memory, BudgetError if the GPU does not.
  [[nodiscard]] at::Tensor block(std::int64_t elems, c10::ScalarType type, BlockUse use) const;

  [[nodiscard]] at::Device device() const { return device_; }

 private:
  at::Device device_;
  bool peers_map_;
};

}  // namespace sluice
