// Memory of the null GPU. A device address has no access rights, so a host that dereferences it
// ends at once with a message. Copies reach the bytes through a second mapping of the same pages.
// Pages exist once they are written, so a card of 80 GB costs what is really copied to it.
//
// A null GPU that computes (queue.hpp) gives access to all. Its fresh memory is poisoned.
#pragma once

#include <cstddef>

namespace null_gpu {

enum class Place { kDevice, kPinned, kPageable };

// A byte of memory that nobody wrote: NaN in fp32, bf16 and fp16, -1 in whole numbers.
inline constexpr int kPoison = 0xff;

// Null if the card is full.
[[nodiscard]] void* take_device(int device, std::size_t bytes);
// False if no block begins there.
[[nodiscard]] bool give_device(void* address);

void note_pinned(const void* address, std::size_t bytes);
// Returns the block's bytes; 0 if no block begins there.
std::size_t forget_pinned(const void* address);

// The place of an address. `device`: of device memory.
[[nodiscard]] Place place_of(const void* address, int* device = nullptr);
// All `bytes` from `address` on lie in one live block of the device.
[[nodiscard]] bool is_device_range(const void* address, std::size_t bytes);
// `bytes` from `address` on lie in one registration of host memory, or begin outside of any and
// reach into none.
[[nodiscard]] bool is_host_range(const void* address, std::size_t bytes);
// The device address's bytes, for copies.
[[nodiscard]] void* bytes_behind(const void* address);

[[nodiscard]] std::size_t device_bytes_free(int device);
[[nodiscard]] std::size_t device_bytes_total();
[[nodiscard]] int device_count();
// Newest CUDA that the driver serves: NULL_GPU_DRIVER, 13000 for 13.0.
[[nodiscard]] int driver_version();
// Of a card: NULL_GPU_CAPABILITY, times ten, and NULL_GPU_MULTIPROCESSORS.
[[nodiscard]] int capability();
[[nodiscard]] int multiprocessors();

}  // namespace null_gpu
