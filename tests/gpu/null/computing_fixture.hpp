// What the tests of a null GPU that computes share. Each test process computes from its begin.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/gpu/null/fixture.hpp"
#include "tests/gpu/null/queue.hpp"

namespace null_gpu {

// Before the first use of the GPU: memory is mapped for it.
inline const int computing = ::setenv("NULL_GPU_COMPUTES", "early", 1);

class ComputingGpu : public NullGpu {
 public:
  ~ComputingGpu() override {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    set_schedule("early");
  }

 protected:
  ComputingGpu() { EXPECT_EQ(computing, 0); }
};

inline int* at(const DeviceMemory& memory) { return reinterpret_cast<int*>(memory.get()); }

inline void write(const DeviceMemory& memory, int value, const Stream& stream) {
  enqueue(stream.get(), [to = at(memory), value] {
    *to = value;
    return true;
  });
}

inline void copy(void* to, const void* from, const Stream& stream) {
  ASSERT_EQ(cudaMemcpyAsync(to, from, sizeof(int), cudaMemcpyDefault, stream.get()), cudaSuccess);
}

inline int read(const DeviceMemory& memory, const Stream& stream) {
  int value = 0;
  copy(&value, memory.get(), stream);
  return value;
}

inline void record(const Event& event, const Stream& stream) {
  ASSERT_EQ(cudaEventRecord(event.get(), stream.get()), cudaSuccess);
}

inline void wait(const Stream& stream, const Event& event) {
  ASSERT_EQ(cudaStreamWaitEvent(stream.get(), event.get(), 0), cudaSuccess);
}

}  // namespace null_gpu
