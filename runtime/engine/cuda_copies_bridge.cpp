// Copies between a GPU and the host, in the CUDA module.
//
// Each thread has a current stream of its own (OwnStream), so a wait for NCCL (Ticket::wait) delays
// only that stream. Two threads, hence two streams, copy to the host and to the device at the same
// time. The executing thread's stream computes. Marks are events on that stream, and copies wait
// for marks.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "kernels/cuda/check_cuda.hpp"
#include "offload/device_copies.hpp"
#include "parallel/comm/own_stream.hpp"
#include "runtime/engine/cuda_errors.hpp"
#include "runtime/engine/tiers/cuda_tiers.hpp"

namespace sluice {
namespace {

// The thread's stream. NCCL's streams have the high priority, so that its kernels start between
// those of the model.
void use_own_stream(c10::DeviceIndex device) {
  thread_local std::optional<OwnStream> own;
  c10::cuda::set_device(device);
  own.emplace(device, OwnStream::Priority::kNormal);
  c10::cuda::setCurrentCUDAStream(own->get());
}

// Settings of libtorch's allocator under which a run takes other memory than its plan. The memory
// of a step is reserved as one segment (reserve_bytes), which max_split_size_mb would not let the
// allocator divide, so a step would take all its memory a second time. Expandable segments map
// large tensors by pages of 20 MiB for each pool and stream, which no plan counts. They keep freed
// neighbours together, as the one segment does.
void check_allocator_settings() {
  using Settings = c10::CachingAllocator::AcceleratorAllocatorConfig;
  const std::string backend = c10::cuda::CUDACachingAllocator::name();
  std::string setting;
  if (backend != "native") setting = "backend:" + backend;
  if (Settings::max_split_size() != std::numeric_limits<std::size_t>::max()) {
    setting = "max_split_size_mb";
  }
  if (Settings::use_expandable_segments()) setting = "expandable_segments:True";
  if (setting.empty()) return;
  throw ConfigError("libtorch's allocator is set to " + setting +
                    ", which Sluice's memory plan does not allow; leave it out of "
                    "PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF");
}

// cuBLAS adds the parts of a 16-bit product in fp32, as a CPU does. By default libtorch lets cuBLAS
// round them to 16 bits first.
void add_in_fp32() {
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  at::globalContext().setAllowFP16ReductionCuBLAS(false);
}

class CudaCopies final : public DeviceCopies {
 public:
  explicit CudaCopies(int device)
      : device_(static_cast<c10::DeviceIndex>(device)), name_("GPU " + std::to_string(device)) {}

  void begin_thread() override {
    translated("a stream of its own for a thread that copies from and to " + name_,
               [&] { use_own_stream(device_); });
  }

  [[nodiscard]] Mark mark() override { return record("marking what " + name_ + " has to compute"); }

  void after(const Mark& mark) override {
    if (!mark) return;
    translated("waiting for what " + name_ + " computes",
               [&] { std::static_pointer_cast<at::cuda::CUDAEvent>(mark)->block(stream()); });
  }

  void to_host(void* to, DevicePtr from, std::int64_t bytes) override {
    copy(to, reinterpret_cast<const void*>(from.address()), bytes, cudaMemcpyDeviceToHost);
  }
  void to_device(DevicePtr to, const void* from, std::int64_t bytes) override {
    copy(reinterpret_cast<void*>(to.address()), from, bytes, cudaMemcpyHostToDevice);
  }

  // Rounds element 0, then [1, 2), [2, 4), [4, 8), ...: from the second on, the bf16 values of a
  // part lie in front of its fp32 values and behind those of the parts before, which are not
  // needed.
  void to_host_bf16(void* to, DevicePtr from, std::int64_t elems) override {
    translated("rounding gradients on " + name_, [&] {
      for (std::int64_t first = 0; first < elems;) {
        const std::int64_t n = std::min(std::max<std::int64_t>(first, 1), elems - first);
        view(from + first * 2, n, at::kBFloat16).copy_(view(from + first * 4, n, at::kFloat));
        first += n;
      }
    });
    to_host(to, from, elems * 2);
  }

  [[nodiscard]] Ticket begun() override {
    const std::string what = "copies of " + name_;
    return Ticket(std::make_shared<Begun>(record(what, kSleeps), what));
  }

  // After an error it is unknown whether the stream's copies were abandoned.
  void settle() override {
    const cudaError_t now = cudaStreamQuery(stream().stream());
    if (now == cudaSuccess) return;
    // Clears "not ready", which a later kernel launch could report.
    (void)cudaGetLastError();
    const std::string what = "copies from and to " + name_;
    try {
      if (now != cudaErrorNotReady) check_cuda(now, what);
      const Event event = record(what, kSleeps);
      translated(what, [&] { event->synchronize(); });
    } catch (const Error&) {
      lost_.store(true);
      throw;
    }
  }
  [[nodiscard]] bool lost() const override { return lost_.load(); }

 private:
  using Event = std::shared_ptr<at::cuda::CUDAEvent>;
  // A waiting thread sleeps and leaves its core to the host's optimizer.
  static constexpr unsigned kSleeps = cudaEventDisableTiming | cudaEventBlockingSync;

  class Begun final : public TicketState {
   public:
    Begun(Event event, std::string what) : event_(std::move(event)), what_(std::move(what)) {}
    void wait() override {
      translated(what_, [&] { event_->synchronize(); });
    }
    [[nodiscard]] bool done() override {
      return translated(what_, [&] { return event_->query(); });
    }

   private:
    const Event event_;
    const std::string what_;
  };

  [[nodiscard]] at::Tensor view(DevicePtr memory, std::int64_t elems, at::ScalarType type) const {
    const at::Device device(at::kCUDA, device_);
    return at::for_blob(reinterpret_cast<void*>(memory.address()), {elems})
        .options(at::TensorOptions().dtype(type).device(device))
        .target_device(device)
        .make_tensor();
  }
  [[nodiscard]] c10::cuda::CUDAStream stream() const {
    return c10::cuda::getCurrentCUDAStream(device_);
  }
  [[nodiscard]] Event record(const std::string& what,
                             unsigned flags = cudaEventDisableTiming) const {
    return translated(what, [&] {
      auto event = std::make_shared<at::cuda::CUDAEvent>(flags);
      event->record(stream());
      return event;
    });
  }
  void copy(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    const cudaError_t status =
        cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, stream().stream());
    check_cuda(status, "copying " + std::to_string(bytes) + " bytes " +
                           (kind == cudaMemcpyDeviceToHost ? "from " + name_ + " to the host"
                                                           : "from the host to " + name_));
  }

  const c10::DeviceIndex device_;
  const std::string name_;
  std::atomic<bool> lost_{false};
};

}  // namespace
}  // namespace sluice

extern "C" __attribute__((visibility("default"))) sluice::DeviceCopies* sluice_make_cuda_copies(
    int device) {
  return new sluice::CudaCopies(device);
}

extern "C" __attribute__((visibility("default"))) void sluice_use_gpu(int device) {
  sluice::translated("GPU " + std::to_string(device), [&] {
    sluice::check_allocator_settings();
    sluice::add_in_fp32();
    // Also initialises the allocator, whose statistics are read before the first tensor.
    c10::cuda::CUDACachingAllocator::init(c10::cuda::device_count());
    const auto index = static_cast<c10::DeviceIndex>(device);
    c10::cuda::set_device(index);
    // A second call keeps the stream, so that work of before stays before later work.
    const bool has_own =
        c10::cuda::getCurrentCUDAStream(index) != c10::cuda::getDefaultCUDAStream(index);
    if (!has_own) sluice::use_own_stream(index);
  });
}

extern "C" __attribute__((visibility("default"))) void sluice_limit_gpu_memory(int device,
                                                                               double share) {
  sluice::translated("the memory limit of GPU " + std::to_string(device), [&] {
    c10::cuda::CUDACachingAllocator::setMemoryFraction(share,
                                                       static_cast<c10::DeviceIndex>(device));
  });
}

extern "C" __attribute__((visibility("default"))) void sluice_gpu_name(int device,
                                                                       std::string& name) {
  cudaDeviceProp properties{};
  sluice::check_cuda(cudaGetDeviceProperties(&properties, device),
                     "the name of GPU " + std::to_string(device));
  name = properties.name;
}
