// Events with times, in the CUDA module.
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <memory>
#include <string>

#include "kernels/cuda/check_cuda.hpp"
#include "parallel/comm/call_watch.hpp"
#include "runtime/engine/cuda_errors.hpp"
#include "runtime/engine/device_events.hpp"
#include "runtime/engine/tiers/cuda_tiers.hpp"

namespace sluice {
namespace {

constexpr char kRecording[] = "recording the time of an operation";

class CudaEvent final : public DeviceEvent {
 public:
  explicit CudaEvent(c10::DeviceIndex device) : device_(device) {
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDefault), "making an event for times");
  }
  ~CudaEvent() override { (void)cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record() override {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device_).stream();
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(stream, &capturing), kRecording);
    // An event without the flag would belong to the graph, and the host could not read its time.
    const unsigned flags =
        capturing == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal;
    check_cuda(cudaEventRecordWithFlags(event_, stream, flags), kRecording);
    recorded_.store(true);
  }
  [[nodiscard]] std::optional<double> ms_after(const DeviceEvent& base) const override {
    const auto& from = static_cast<const CudaEvent&>(base);
    if (!from.recorded_.load() || !recorded_.load()) return std::nullopt;
    float ms = 0;
    const cudaError_t status = cudaEventElapsedTime(&ms, from.event_, event_);
    if (status == cudaSuccess) return ms;
    // The second: a node of a graph that has not been launched yet.
    if (status != cudaErrorNotReady && status != cudaErrorInvalidResourceHandle) {
      check_cuda(status, "reading the time of an operation");
    }
    (void)cudaGetLastError();
    return std::nullopt;
  }
  void wait() override {
    check_cuda(cudaEventSynchronize(event_), "waiting for the end of an operation");
  }

 private:
  const c10::DeviceIndex device_;
  cudaEvent_t event_ = nullptr;
  std::atomic<bool> recorded_{false};  // or a node of a graph
};

// The events of the calls of one thread. An operation with several calls lasts from the begin of
// the first to the end of the last.
class FollowedCalls final : public CallWatch {
 public:
  void begins() override {
    if (!called) begin->record();
    called = true;
  }
  void ends() override { end->record(); }

  DeviceEvent* begin = nullptr;
  DeviceEvent* end = nullptr;
  bool called = false;
};

FollowedCalls& followed() {
  thread_local FollowedCalls calls;
  return calls;
}

class CudaEvents final : public DeviceEvents {
 public:
  explicit CudaEvents(c10::DeviceIndex device) : device_(device) {}

  [[nodiscard]] std::unique_ptr<DeviceEvent> make() override {
    return std::make_unique<CudaEvent>(device_);
  }
  void follow_calls(DeviceEvent& begin, DeviceEvent& end) override {
    followed().begin = &begin;
    followed().end = &end;
    followed().called = false;
    call_watch() = &followed();
  }
  bool leave_calls() noexcept override {
    call_watch() = nullptr;
    return followed().called;
  }

 private:
  const c10::DeviceIndex device_;
};

}  // namespace
}  // namespace sluice

extern "C" __attribute__((visibility("default"))) sluice::DeviceEvents* sluice_make_cuda_events(
    int device) {
  return new sluice::CudaEvents(static_cast<c10::DeviceIndex>(device));
}
