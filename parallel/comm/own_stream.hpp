// A CUDA stream that nothing else in the process has. In the CUDA module.
//
// libtorch's pool gives its 32 streams in turn, so the thread of a later engine could get the
// stream of the executing thread, and a query of that stream ends the recording of a graph. The
// first use of the pool also creates 32 streams of each priority, in turn by priority. The driver
// has few queues for all streams (CUDA_DEVICE_MAX_CONNECTIONS, 8 by default), and streams that
// share a queue wait for each other. Streams of this class are created one by one when they are
// needed, so the few streams of a rank need not share.
#pragma once

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cuda/check_cuda.hpp"

namespace sluice {

// The stream waits for no other stream, also not for the default one. Its destructor leaves the
// stream to a later OwnStream of the same device and priority: libtorch's allocator may still
// record events on it. Kernels of high priority start before waiting kernels of normal priority.
class OwnStream {
 public:
  enum class Priority { kNormal, kHigh };

  OwnStream(c10::DeviceIndex device, Priority priority)
      : priority_(priority), stream_(take(device, priority)) {}
  ~OwnStream() {
    const std::lock_guard lock(mutex());
    left().push_back({priority_, stream_});
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  [[nodiscard]] c10::cuda::CUDAStream get() const { return stream_; }

 private:
  struct Left {
    Priority priority;
    c10::cuda::CUDAStream stream;
  };

  // Never destroyed, for threads that end with the process.
  static std::mutex& mutex() {
    static auto* const mutex = new std::mutex;
    return *mutex;
  }
  static std::vector<Left>& left() {
    static auto* const streams = new std::vector<Left>;
    return *streams;
  }

  static c10::cuda::CUDAStream take(c10::DeviceIndex device, Priority priority) {
    const std::lock_guard lock(mutex());
    const auto found = std::find_if(left().begin(), left().end(), [&](const Left& other) {
      return other.priority == priority && other.stream.device_index() == device;
    });
    if (found == left().end()) return create(device, priority);
    const c10::cuda::CUDAStream stream = found->stream;
    left().erase(found);
    return stream;
  }

  static c10::cuda::CUDAStream create(c10::DeviceIndex device, Priority priority) {
    const c10::cuda::CUDAGuard on_device(device);
    const std::string what = "a stream on GPU " + std::to_string(device);
    int least = 0;
    int greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), what);
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                            priority == Priority::kHigh ? greatest : least),
               what);
    return c10::cuda::getStreamFromExternal(stream, device);
  }

  const Priority priority_;
  const c10::cuda::CUDAStream stream_;
};

}  // namespace sluice
