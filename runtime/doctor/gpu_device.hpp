// A GPU as the doctor works with it: memory, copies and streams of the tiers' own machinery, some
// work to time and stamps to time it by. The CUDA module has the real one (cuda_gpu.hpp); tests
// have one in RAM.
//
// What enqueues does so on the calling thread's stream and returns. One thread calls, but for
// stamp() and what copies() lets others do; seconds() blocks. Each throws Error with what failed.
#pragma once

#include <cstdint>
#include <memory>

#include "base/dtype.hpp"
#include "offload/device_copies.hpp"
#include "offload/host_pool.hpp"
#include "runtime/doctor/gpu_facts.hpp"

namespace sluice {

class GpuDevice {
 public:
  using Stamp = std::shared_ptr<void>;

  virtual ~GpuDevice() = default;
  [[nodiscard]] virtual GpuFacts facts() = 0;  // without link
  [[nodiscard]] virtual std::shared_ptr<DeviceCopies> copies() = 0;
  [[nodiscard]] virtual std::shared_ptr<PageSource> pages() = 0;  // registered for its copies
  // Exactly so many bytes, until the last reference ends. Throws Error where there are none.
  [[nodiscard]] virtual std::shared_ptr<void> allocate(std::int64_t bytes) = 0;

  // When the stream comes there; any thread that copies. Over by seconds(), which waits for both.
  [[nodiscard]] virtual Stamp stamp() = 0;
  [[nodiscard]] virtual double seconds(const Stamp& from, const Stamp& to) = 0;

  // Enqueue. Memory of the device, fp32; to[i] = a[i] + 0.5 b[i].
  virtual void copy_within(void* to, const void* from, std::int64_t bytes) = 0;
  virtual void triad(void* to, const void* a, const void* b, std::int64_t elems) = 0;
  // Matrices [side, side] of normal values, as libtorch multiplies a run's; multiply() enqueues one
  // product of the last that were prepared. side 0: gives their memory back.
  virtual void prepare_product(DType dtype, std::int64_t side) = 0;
  virtual void multiply() = 0;
};

}  // namespace sluice
