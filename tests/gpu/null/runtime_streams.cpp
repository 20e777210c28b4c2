// The CUDA runtime's streams and events. Where the null GPU does not compute, work is done when it
// is enqueued, so every stream is idle and every event complete. An event's time is that of its
// record, and later than all before.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "tests/gpu/null/graphs.hpp"
#include "tests/gpu/null/queue.hpp"
#include "tests/gpu/null/record.hpp"
#include "tests/gpu/null/runtime.hpp"

namespace null_gpu {
namespace {

// Live handles of one kind, with the card that was the thread's. Numbers are not used again, so a
// stale handle stays unknown.
class Handles {
 public:
  void* make() {
    const std::lock_guard lock(mutex_);
    next_ += 16;
    live_[next_] = current_device();
    return reinterpret_cast<void*>(next_);
  }
  void add(const void* handle) {
    const std::lock_guard lock(mutex_);
    live_[reinterpret_cast<std::uintptr_t>(handle)] = current_device();
  }
  // The thread's card for a handle that is not live.
  int device_of(const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(reinterpret_cast<std::uintptr_t>(handle));
    return found == live_.end() ? current_device() : found->second;
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
  std::map<std::uintptr_t, int> live_;
};

Handles& streams() {
  static auto* const all = new Handles;
  return *all;
}
Handles& events() {
  static auto* const all = new Handles;
  return *all;
}

// The events' last records: when, and behind how much work. Thread-safe.
class EventTimes {
 public:
  void note(const void* event) {
    const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
    const std::lock_guard lock(mutex_);
    last_ = std::max(now, last_ + kApartNs);
    times_[event] = {last_, work_number()};
  }
  void drop(const void* event) {
    const std::lock_guard lock(mutex_);
    times_.erase(event);
  }
  // Nanoseconds; 0 without a record.
  std::int64_t of(const void* event) {
    const std::lock_guard lock(mutex_);
    const auto found = times_.find(event);
    return found == times_.end() ? 0 : found->second.ns;
  }
  // work_number() of then; 0 without a record.
  std::int64_t work_before(const void* event) {
    const std::lock_guard lock(mutex_);
    const auto found = times_.find(event);
    return found == times_.end() ? 0 : found->second.work;
  }

 private:
  struct Time {
    std::int64_t ns = 0;
    std::int64_t work = 0;
  };
  static constexpr std::int64_t kApartNs = 2000;  // more than a reader's rounding
  std::mutex mutex_;
  std::map<const void*, Time> times_;
  std::int64_t last_ = 0;
};

EventTimes& times() {
  static auto* const all = new EventTimes;
  return *all;
}
Handles& untimed() {  // events without times
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

// As a card answers: the error stays until cudaGetLastError().
cudaError_t readiness(bool done) { return done ? cudaSuccess : remembered(cudaErrorNotReady); }

// A live event, recorded by a stream of its own card.
cudaError_t with_record(cudaEvent_t event, cudaStream_t stream, const char* what) {
  const cudaError_t status = with_event(event, what);
  if (status != cudaSuccess) return status;
  if (events().device_of(event) == device_of_stream(stream)) return cudaSuccess;
  return refused(std::string(what) + ": a stream of another card than the event's");
}

void note_record(cudaEvent_t event, const void* stream) {
  times().note(event);
  enqueue_record(event, stream);
}

cudaError_t record_event(cudaEvent_t event, cudaStream_t stream) {
  const cudaError_t status = with_record(event, stream, "cudaEventRecord");
  if (status != cudaSuccess) return status;
  note_event(event, stream);
  if (!is_capturing(stream)) note_record(event, stream);
  return with_stream(stream, "cudaEventRecord");
}

// A node of the graph: each launch records the event anew, and the host may read it.
cudaError_t record_in_graph(cudaEvent_t event, cudaStream_t stream) {
  const cudaError_t status = with_record(event, stream, "cudaEventRecordWithFlags");
  if (status != cudaSuccess) return status;
  const auto again = [event](const void* launching) { note_record(event, launching); };
  if (recorded(stream, again)) return cudaSuccess;
  return refused("cudaEventRecordWithFlags: an external event of a stream that does not capture");
}

cudaError_t with_time(cudaEvent_t event) {
  constexpr const char* kWhat = "cudaEventElapsedTime";
  const cudaError_t status = with_event(event, kWhat);
  if (status != cudaSuccess) return status;
  if (untimed().has(event)) return refused(std::string(kWhat) + " of an event without times");
  if (belongs_to_graph(event)) return refused(std::string(kWhat) + " of an event inside a graph");
  // As a card answers: no fault, the event has no time yet.
  if (times().of(event) == 0) return remembered(cudaErrorInvalidResourceHandle);
  return readiness(is_done_event(event));
}

// Of a stream or an event that the host looks at or waits for.
cudaError_t outside_of_graphs(bool in_graph, const char* what) {
  return in_graph ? refused(std::string(what) + " of what a stream only records") : cudaSuccess;
}

void run_on_host(cudaStream_t stream, const std::function<void()>& function) {
  if (!computes()) return function();
  enqueue(stream, [function] {
    function();
    return true;
  });
}

}  // namespace

int device_of_stream(const void* stream) { return streams().device_of(stream); }

}  // namespace null_gpu

using namespace null_gpu;  // NOLINT: this file is bodies of C functions

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  need_context();
  *stream = static_cast<cudaStream_t>(streams().make());
  if ((flags & cudaStreamNonBlocking) == 0) note_blocking_stream(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return streams().drop(stream) ? cudaSuccess : refused("cudaStreamDestroy: no live stream");
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  count_query();
  cudaError_t status = outside_of_graphs(is_capturing(stream), "cudaStreamQuery");
  if (status == cudaSuccess) status = with_stream(stream, "cudaStreamQuery");
  if (status != cudaSuccess) return status;
  return readiness(is_done_stream(stream));
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  count_wait(Wait::kStream);
  cudaError_t status = outside_of_graphs(is_capturing(stream), "cudaStreamSynchronize");
  if (status == cudaSuccess) status = with_stream(stream, "cudaStreamSynchronize");
  if (status == cudaSuccess) finish_stream(stream);
  return status;
}
// A graph cannot wait for work outside of it, and no work outside for a part of it.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  count_stream_wait();
  if (is_capturing(stream) != belongs_to_graph(event)) {
    return refused("cudaStreamWaitEvent between a graph and work outside of it");
  }
  cudaError_t status = with_event(event, "cudaStreamWaitEvent");
  if (status == cudaSuccess) status = with_stream(stream, "cudaStreamWaitEvent");
  if (status == cudaSuccess && !is_capturing(stream)) enqueue_wait(stream, event);
  return status;
}
// A function of the host runs in the stream's order.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  if (is_capturing(stream)) return refused("a graph with a function of the host");
  run_on_host(stream, [=] { function(data); });
  return cudaSuccess;
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned) {
  if (is_capturing(stream)) return refused("a graph with a callback of the host");
  run_on_host(stream, [=] { callback(stream, cudaSuccess, data); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  need_context();
  *event = static_cast<cudaEvent_t>(events().make());
  if ((flags & cudaEventDisableTiming) != 0) untimed().add(*event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  times().drop(event);
  forget_event(event);
  (void)untimed().drop(event);
  return events().drop(event) ? cudaSuccess : refused("cudaEventDestroy: no live event");
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return record_event(event, stream);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  const bool external = (flags & cudaEventRecordExternal) != 0;
  return external ? record_in_graph(event, stream) : record_event(event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  count_query();
  cudaError_t status = outside_of_graphs(belongs_to_graph(event), "cudaEventQuery");
  if (status == cudaSuccess) status = with_event(event, "cudaEventQuery");
  if (status != cudaSuccess) return status;
  return readiness(is_done_event(event));
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  count_wait(Wait::kEvent, times().work_before(event));
  cudaError_t status = outside_of_graphs(belongs_to_graph(event), "cudaEventSynchronize");
  if (status == cudaSuccess) status = with_event(event, "cudaEventSynchronize");
  if (status == cudaSuccess) finish_event(event);
  return status;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  for (const cudaEvent_t event : {from, to}) {
    if (const cudaError_t status = with_time(event); status != cudaSuccess) return status;
  }
  *ms = static_cast<float>(1e-6 * static_cast<double>(times().of(to) - times().of(from)));
  return cudaSuccess;
}

}  // extern "C"
