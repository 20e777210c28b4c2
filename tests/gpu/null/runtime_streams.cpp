// The CUDA runtime's streams and events. Work is done when it is enqueued, so every stream is idle
// and every event complete. Times between events are 1 ms.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <mutex>
#include <set>
#include <string>

#include "tests/gpu/null/graphs.hpp"
#include "tests/gpu/null/record.hpp"
#include "tests/gpu/null/runtime.hpp"

namespace null_gpu {
namespace {

// Live handles of one kind. Numbers are not used again, so a stale handle stays unknown.
class Handles {
 public:
  void* make() {
    const std::lock_guard lock(mutex_);
    next_ += 16;
    live_.insert(next_);
    return reinterpret_cast<void*>(next_);
  }
  bool drop(const void* handle) {
    const std::lock_guard lock(mutex_);
    return live_.erase(reinterpret_cast<std::uintptr_t>(handle)) > 0;
  }
  bool has(const void* handle) {
    const std::lock_guard lock(mutex_);
    return live_.count(reinterpret_cast<std::uintptr_t>(handle)) > 0;
  }

 private:
  std::mutex mutex_;
  std::uintptr_t next_ = 0x1000;  // above the runtime's own handles, 0 to 2
  std::set<std::uintptr_t> live_;
};

Handles& streams() {
  static auto* const all = new Handles;
  return *all;
}
Handles& events() {
  static auto* const all = new Handles;
  return *all;
}

// cudaStreamLegacy and cudaStreamPerThread are 1 and 2.
bool is_stream(const void* stream) {
  return reinterpret_cast<std::uintptr_t>(stream) <= 2 || streams().has(stream);
}

cudaError_t with_event(cudaEvent_t event, const char* what) {
  if (events().has(event)) return cudaSuccess;
  return refused(std::string(what) + ": no live event");
}

cudaError_t with_stream(cudaStream_t stream, const char* what) {
  if (is_stream(stream)) return cudaSuccess;
  return refused(std::string(what) + ": no live stream");
}

cudaError_t record_event(cudaEvent_t event, cudaStream_t stream) {
  const cudaError_t status = with_event(event, "cudaEventRecord");
  if (status != cudaSuccess) return status;
  note_event(event, stream);
  return with_stream(stream, "cudaEventRecord");
}

// Of a stream or an event that the host looks at or waits for.
cudaError_t outside_of_graphs(bool in_graph, const char* what) {
  return in_graph ? refused(std::string(what) + " of what a stream only records") : cudaSuccess;
}

}  // namespace
}  // namespace null_gpu

using namespace null_gpu;  // NOLINT: this file is bodies of C functions

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = static_cast<cudaStream_t>(streams().make());
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = static_cast<cudaStream_t>(streams().make());
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return streams().drop(stream) ? cudaSuccess : refused("cudaStreamDestroy: no live stream");
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  count_query();
  const cudaError_t status = outside_of_graphs(is_capturing(stream), "cudaStreamQuery");
  return status != cudaSuccess ? status : with_stream(stream, "cudaStreamQuery");
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  count_wait(Wait::kStream);
  const cudaError_t status = outside_of_graphs(is_capturing(stream), "cudaStreamSynchronize");
  return status != cudaSuccess ? status : with_stream(stream, "cudaStreamSynchronize");
}
// A graph cannot wait for work outside of it, and no work outside for a part of it.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (is_capturing(stream) != belongs_to_graph(event)) {
    return refused("cudaStreamWaitEvent between a graph and work outside of it");
  }
  const cudaError_t status = with_event(event, "cudaStreamWaitEvent");
  return status != cudaSuccess ? status : with_stream(stream, "cudaStreamWaitEvent");
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned) {
  if (is_capturing(stream)) return refused("a graph with a callback of the host");
  callback(stream, cudaSuccess, data);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = static_cast<cudaEvent_t>(events().make());
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return events().drop(event) ? cudaSuccess : refused("cudaEventDestroy: no live event");
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return record_event(event, stream);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return record_event(event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  count_query();
  const cudaError_t status = outside_of_graphs(belongs_to_graph(event), "cudaEventQuery");
  return status != cudaSuccess ? status : with_event(event, "cudaEventQuery");
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  count_wait(Wait::kEvent);
  const cudaError_t status = outside_of_graphs(belongs_to_graph(event), "cudaEventSynchronize");
  return status != cudaSuccess ? status : with_event(event, "cudaEventSynchronize");
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  *ms = 1;
  const cudaError_t status = with_event(from, "cudaEventElapsedTime");
  return status != cudaSuccess ? status : with_event(to, "cudaEventElapsedTime");
}

}  // extern "C"
