// A GPU as the doctor uses it: memory, copies and streams of the memory tiers, work to time, and
// stamps for timing. The CUDA module implements it (cuda_gpu.hpp); tests implement it in RAM.
//
// A function that enqueues uses the calling thread's stream and returns. One thread calls, except
// for stamp() and uses of copies(); seconds() blocks. Each function throws Error with its cause.
#pragma once

#include <cstdint>
#include <memory>

#include "offload/device_copies.hpp"
#include "offload/host_pool.hpp"
#include "runtime/doctor/gpu_facts.hpp"

namespace sluice {

// Types of a product's operands. The result of kFp8 is bf16.
enum class ProductType { kFp32, kBf16, kFp16, kFp8 };

class GpuDevice {
 public:
  using Stamp = std::shared_ptr<void>;

  virtual ~GpuDevice() = default;
  [[nodiscard]] virtual GpuFacts facts() = 0;  // without link
  [[nodiscard]] virtual std::shared_ptr<DeviceCopies> copies() = 0;
  [[nodiscard]] virtual std::shared_ptr<PageSource> pages() = 0;  // registered for its copies
  // Exactly this many bytes, until the last reference ends. Throws Error if memory is missing.
  [[nodiscard]] virtual std::shared_ptr<void> allocate(std::int64_t bytes) = 0;

  // Marks the stream's current position; any copying thread may call. seconds() waits for both
  // stamps.
  [[nodiscard]] virtual Stamp stamp() = 0;
  [[nodiscard]] virtual double seconds(const Stamp& from, const Stamp& to) = 0;

  // Enqueues, on device memory in fp32: to[i] = a[i] + 0.5 b[i].
  virtual void copy_within(void* to, const void* from, std::int64_t bytes) = 0;
  virtual void triad(void* to, const void* a, const void* b, std::int64_t elems) = 0;
  // Prepares matrices [side, side] of normal values, multiplied as in a run; multiply() enqueues
  // one product of the last prepared matrices. side 0 frees their memory. kFp8 needs
  // kFp8Capability.
  virtual void prepare_product(ProductType type, std::int64_t side) = 0;
  virtual void multiply() = 0;
};

}  // namespace sluice
