// The long-lived blocks of a rank's device tier: parameters, gradients, states, the arena.
//
// On the host a block is memory of its own, not the allocator's: every page is taken when it is
// made, on the calling thread (and so on that thread's memory node), so that no step waits for the
// kernel to find and clear pages.
//
//   a block that only this rank reads   private, huge pages where the kernel has them (THP madvise
//                                       or always); the tail that fills none is of small pages
//   a block of which collectives send   the same, or where the communicator reads its peers' memory
//                                       in place: HostMemory (huge pages by shmem_enabled)
//
// On other devices it is the allocator's tensor. Blocks count as host allocations of exactly the
// bytes asked for (counting_allocator.hpp); the kernel rounds each up to a page.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sluice {

enum class BlockUse {
  kOwn,         // states, scratch
  kCollective,  // an input of collectives
};

// A value: says where blocks come from. The blocks are the tensors'. Thread-safe.
class DeviceMemory {
 public:
  // `peers_map`: Communicator::maps_host_memory of who sends from the blocks.
  DeviceMemory(at::Device device, bool peers_map) : device_(device), peers_map_(peers_map) {}

  // Zeroes, [elems] of `type`, resident. The memory goes with the tensor's storage. Throws IoError
  // where the machine has not got it.
  [[nodiscard]] at::Tensor block(std::int64_t elems, c10::ScalarType type, BlockUse use) const;

  [[nodiscard]] at::Device device() const { return device_; }

 private:
  at::Device device_;
  bool peers_map_;
};

}  // namespace sluice
