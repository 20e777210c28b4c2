// The norm of a GPU's gradients, in the CUDA module.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "kernels/cuda/check_cuda.hpp"
#include "kernels/cuda/step_clip.hpp"
#include "kernels/cuda/sum_squares.hpp"
#include "runtime/engine/cuda_errors.hpp"
#include "runtime/engine/device_norm.hpp"
#include "runtime/engine/tiers/cuda_tiers.hpp"

namespace sluice {
namespace {

// Device memory, and registered host memory, of at least the elements that were asked for. Outside
// of libtorch's allocator: a block there in the middle of a step would leave holes that no large
// tensor of the next step fits in.
template <class T>
class Memory {
 public:
  explicit Memory(bool on_host) : on_host_(on_host) {}
  ~Memory() { (void)release(); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Of the current device. May wait for the device, the first time.
  T* grown_to(std::int64_t elems) {
    if (elems <= elems_) return data();
    check_cuda(release(), "freeing the norm's memory");
    const auto bytes = static_cast<std::size_t>(elems) * sizeof(T);
    check_cuda(
        on_host_ ? cudaHostAlloc(&data_, bytes, cudaHostAllocDefault) : cudaMalloc(&data_, bytes),
        "memory for the gradient norm");
    elems_ = elems;
    return data();
  }
  [[nodiscard]] T* data() const { return static_cast<T*>(data_); }

 private:
  cudaError_t release() {
    elems_ = 0;
    void* const data = std::exchange(data_, nullptr);
    if (data == nullptr) return cudaSuccess;  // cudaFreeHost does not promise to take null
    return on_host_ ? cudaFreeHost(data) : cudaFree(data);
  }

  const bool on_host_;
  void* data_ = nullptr;
  std::int64_t elems_ = 0;
};

// A place in a stream that the host waits for. Of the current device.
class HostWait {
 public:
  explicit HostWait(unsigned flags) {
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | flags),
               "an event for the gradient norm");
  }
  ~HostWait() { (void)cudaEventDestroy(event_); }
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;

  void mark(cudaStream_t stream) {
    check_cuda(cudaEventRecord(event_, stream), "marking the gradient norm");
  }
  void wait() { check_cuda(cudaEventSynchronize(event_), "computing the gradient norm"); }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaNorm final : public DeviceNorm {
 public:
  CudaNorm(c10::DeviceIndex device, std::span<const cuda::SquaresSpan> sizes) : device_(device) {
    const c10::cuda::CUDAGuard guard(device_);
    read_.emplace(cudaEventBlockingSync);
    decided_.emplace(0U);
    sums_.grown_to(std::ssize(sizes));
    scratch_.grown_to(cuda::squares_scratch(sizes.data(), static_cast<int>(sizes.size())));
    on_device_.grown_to(1);
    part_.grown_to(1);
    on_host_.grown_to(1);
  }

  void sum(std::span<const cuda::SquaresSpan> spans, std::int64_t first) override {
    translated(name(), [&] {
      const c10::cuda::CUDAGuard guard(device_);
      cuda::launch_sum_squares(spans.data(), static_cast<int>(spans.size()), scratch_.data(),
                               sums_.data() + first, {stream()});
    });
  }

  void read(std::span<const double> losses, std::span<double> values) override {
    translated(name(), [&] {
      const std::size_t sums = values.size() - losses.size();
      double* const to = values_.grown_to(std::ssize(values));
      copy_to_host(to, sums_.data(), sums);
      copy_to_host(to + sums, losses.data(), losses.size());
      read_->mark(stream());
      read_->wait();
      std::copy_n(to, values.size(), values.begin());
    });
  }

  void decide(std::int64_t count, std::span<const double> losses,
              const cuda::ClipInput& input) override {
    translated(name(), [&] {
      launch_decision({sums_.data(), count}, losses, input, on_device_.data());
      copy_to_host(on_host_.data(), on_device_.data(), 1);
      decided_->mark(stream());
    });
  }

  [[nodiscard]] const cuda::StepClip* decision() const override { return on_device_.data(); }

  [[nodiscard]] cuda::StepClip wait() override {
    return translated(name(), [&] {
      decided_->wait();
      return *on_host_.data();
    });
  }

  [[nodiscard]] const cuda::StepClip* decide_part(std::int64_t first, std::int64_t count,
                                                  std::span<const double> losses,
                                                  const cuda::ClipInput& input) override {
    return translated(name(), [&] {
      launch_decision({sums_.data() + first, count}, losses, input, part_.data());
      return part_.data();
    });
  }

 private:
  [[nodiscard]] cudaStream_t stream() const {
    return c10::cuda::getCurrentCUDAStream(device_).stream();
  }
  [[nodiscard]] std::string name() const {
    return "the gradient norm on GPU " + std::to_string(device_);
  }

  template <class T>
  void copy_to_host(T* to, const T* from, std::size_t elems) const {
    if (elems == 0) return;
    check_cuda(cudaMemcpyAsync(to, from, elems * sizeof(T), cudaMemcpyDeviceToHost, stream()),
               "copying the gradient norm to the host");
  }

  void launch_decision(cuda::StepSums by, std::span<const double> losses,
                       const cuda::ClipInput& input, cuda::StepClip* to) const {
    const c10::cuda::CUDAGuard guard(device_);
    by.losses = losses.data();
    by.micro_batches = std::ssize(losses);
    cuda::launch_step_clip(by, input, to, {stream()});
  }

  const c10::DeviceIndex device_;
  Memory<double> scratch_{/*on_host=*/false};  // 8 bytes for 4096 elements of a rank's gradients
  Memory<double> sums_{/*on_host=*/false};
  Memory<double> values_{/*on_host=*/true};
  Memory<cuda::StepClip> on_device_{/*on_host=*/false};
  Memory<cuda::StepClip> part_{/*on_host=*/false};
  Memory<cuda::StepClip> on_host_{/*on_host=*/true};
  // The host's optimizer may run meanwhile: the thread that reads sleeps and leaves its core to it.
  // Where the GPU decides, nothing else runs on the host, and the thread spins to go on at once.
  std::optional<HostWait> read_, decided_;
};

}  // namespace
}  // namespace sluice

extern "C" __attribute__((visibility("default"))) sluice::DeviceNorm* sluice_make_cuda_norm(
    int device, std::span<const sluice::cuda::SquaresSpan> sizes) {
  return sluice::translated("the gradient norm on GPU " + std::to_string(device), [&] {
    return new sluice::CudaNorm(static_cast<c10::DeviceIndex>(device), sizes);
  });
}
