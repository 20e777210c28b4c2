// A GPU for the doctor, in the CUDA module.
//
// Copies and registered pages are the memory tiers' own (runtime/engine/tiers/cuda_tiers.hpp);
// products are libtorch's with a run's settings, and in 8 bits a run's own. So the doctor measures
// the rates of a run.
#include <ATen/Context.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <array>
#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "kernels/cuda/block_launch.hpp"
#include "kernels/cuda/check_cuda.hpp"
#include "parallel/comm/gpu_driver.hpp"
#include "runtime/doctor/cuda_gpu.hpp"
#include "runtime/doctor/gpu_device.hpp"
#include "runtime/engine/cuda_errors.hpp"
#include "runtime/engine/tiers/cuda_tiers.hpp"
#include "runtime/model/device/fp8_product.hpp"

extern "C" sluice::MakeCudaCopies sluice_make_cuda_copies;
extern "C" sluice::MakeCudaPages sluice_make_cuda_pages;
extern "C" sluice::UseGpu sluice_use_gpu;

namespace sluice {
namespace {

struct TimedEvent {
  TimedEvent() { check_cuda(cudaEventCreate(&event), "an event that has the time"); }
  ~TimedEvent() { (void)cudaEventDestroy(event); }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  cudaEvent_t event = nullptr;
};

// Of 8-bit products: of what is rounded, and of the result.
at::ScalarType scalar_type_of(ProductType type) {
  if (type == ProductType::kFp32) return at::kFloat;
  return type == ProductType::kFp16 ? at::kHalf : at::kBFloat16;
}

cudaEvent_t event_of(const GpuDevice::Stamp& stamp) {
  return std::static_pointer_cast<TimedEvent>(stamp)->event;
}

// Square matrices in 8 bits, rounded as a run rounds them, and their product by a run's call.
class Fp8Matrices {
 public:
  Fp8Matrices(const at::Tensor& a, const at::Tensor& b, cuda::StreamRef stream)
      : side_(a.size(0)),
        memory_(at::empty({2 * (side_ * side_ + kRoundingBytes) + cuda::kFp8WorkspaceBytes},
                          a.options().dtype(at::kByte))) {
    operands_ = {.of = {operand(a, 0), operand(b, 1)}, .count = 2};
    cuda::launch_fp8_quantise(operands_, stream);
  }

  void multiply(const at::Tensor& d, cuda::StreamRef stream) const {
    cuda::launch_fp8_product({.a = codes(0),
                              .b = codes(1),
                              .d = d.data_ptr(),
                              .m = side_,
                              .n = side_,
                              .k = side_,
                              .d_stride = side_,
                              .workspace = at(2 * (side_ * side_ + kRoundingBytes)),
                              .workspace_bytes = cuda::kFp8WorkspaceBytes},
                             stream);
  }

 private:
  // The parts of the largest magnitude and the reciprocal scale of an operand.
  static constexpr std::int64_t kRoundingBytes = cuda::kFp8PartBytes + 256;

  [[nodiscard]] std::byte* at(std::int64_t byte) const {
    return static_cast<std::byte*>(memory_.data_ptr()) + byte;
  }
  [[nodiscard]] cuda::Fp8Operand operand(const at::Tensor& x, int index) const {
    std::byte* own = at(index * (side_ * side_ + kRoundingBytes));
    return {.x = x.data_ptr(),
            .rows = side_,
            .columns = side_,
            .stride = side_,
            .parts = reinterpret_cast<std::uint32_t*>(own),
            .codes = own + kRoundingBytes,
            .inverse = reinterpret_cast<float*>(own + cuda::kFp8PartBytes)};
  }
  [[nodiscard]] cuda::Fp8Matrix codes(int index) const {
    const cuda::Fp8Operand& x = operands_.of[index];
    return {.codes = x.codes, .format = x.format, .inverse = x.inverse};
  }

  const std::int64_t side_;
  const at::Tensor memory_;
  cuda::Fp8Operands operands_;
};

class CudaGpu final : public GpuDevice {
 public:
  explicit CudaGpu(int device) : device_(device), name_("GPU " + std::to_string(device)) {
    sluice_use_gpu(device);
    std::size_t free = 0;
    std::size_t all = 0;
    check_cuda(cudaMemGetInfo(&free, &all), "the memory of " + name_);
    free_ = static_cast<std::int64_t>(free);
    all_ = static_cast<std::int64_t>(all);
  }

  [[nodiscard]] GpuFacts facts() override {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, device_), "the properties of " + name_);
    int driver = 0;
    int runtime = 0;
    check_cuda(cudaDriverGetVersion(&driver), "the driver's version");
    check_cuda(cudaRuntimeGetVersion(&runtime), "the runtime's version");
    std::array<char, 32> bus{};
    check_cuda(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device_),
               "the PCI address of " + name_);
    GpuFacts facts;
    facts.index = device_;
    facts.name = properties.name;
    facts.compute = std::to_string(properties.major) + "." + std::to_string(properties.minor);
    facts.multiprocessors = properties.multiProcessorCount;
    facts.copy_engines = properties.asyncEngineCount;
    facts.memory_bytes = all_;
    facts.free_bytes = free_;
    facts.driver = cuda_version_text(driver);
    facts.runtime = cuda_version_text(runtime);
    facts.bus_id = bus.data();
    facts.tf32 = translated("libtorch's setting of fp32 products",
                            [] { return at::globalContext().allowTF32CuBLAS(); });
    return facts;
  }

  [[nodiscard]] std::shared_ptr<DeviceCopies> copies() override {
    return std::shared_ptr<DeviceCopies>(sluice_make_cuda_copies(device_));
  }
  [[nodiscard]] std::shared_ptr<PageSource> pages() override {
    return std::shared_ptr<PageSource>(sluice_make_cuda_pages(make_page_source()));
  }
  [[nodiscard]] std::shared_ptr<void> allocate(std::int64_t bytes) override {
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, static_cast<std::size_t>(bytes)),
               format_bytes(bytes) + " of the memory of " + name_);
    return {memory, [](void* at) { (void)cudaFree(at); }};
  }

  [[nodiscard]] Stamp stamp() override {
    auto timed = std::make_shared<TimedEvent>();
    check_cuda(cudaEventRecord(timed->event, stream()), "a time stamp on " + name_);
    return timed;
  }
  [[nodiscard]] double seconds(const Stamp& from, const Stamp& to) override {
    float milliseconds = 0;
    const std::string what = "what was timed on " + name_;
    check_cuda(cudaEventSynchronize(event_of(from)), what);
    check_cuda(cudaEventSynchronize(event_of(to)), what);
    check_cuda(cudaEventElapsedTime(&milliseconds, event_of(from), event_of(to)), what);
    return 1e-3 * static_cast<double>(milliseconds);
  }

  void copy_within(void* to, const void* from, std::int64_t bytes) override {
    check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                               stream()),
               "a copy within " + name_);
  }
  void triad(void* to, const void* a, const void* b, std::int64_t elems) override {
    translated("a sum on " + name_, [&] {
      at::Tensor sum = floats(to, elems);
      at::add_out(sum, floats(a, elems), floats(b, elems), 0.5);
    });
  }

  void prepare_product(ProductType type, std::int64_t side) override {
    translated("matrices on " + name_, [&] {
      a_ = b_ = c_ = at::Tensor();
      fp8_.reset();
      c10::cuda::CUDACachingAllocator::emptyCache();
      if (side == 0) return;
      const auto options = at::TensorOptions().dtype(scalar_type_of(type)).device(device());
      a_ = at::empty({side, side}, options).normal_();
      b_ = at::empty({side, side}, options).normal_();
      c_ = at::empty({side, side}, options);
      if (type == ProductType::kFp8) fp8_.emplace(a_, b_, cuda::StreamRef{stream()});
    });
  }
  void multiply() override {
    translated("a product on " + name_, [&] {
      if (fp8_) return fp8_->multiply(c_, {stream()});
      at::mm_out(c_, a_, b_);
    });
  }

 private:
  [[nodiscard]] c10::DeviceIndex index() const { return static_cast<c10::DeviceIndex>(device_); }
  [[nodiscard]] at::Device device() const { return {c10::DeviceType::CUDA, index()}; }
  [[nodiscard]] cudaStream_t stream() const {
    return c10::cuda::getCurrentCUDAStream(index()).stream();
  }
  [[nodiscard]] at::Tensor floats(const void* data, std::int64_t elems) const {
    return at::from_blob(const_cast<void*>(data), {elems},
                         at::TensorOptions().dtype(at::kFloat).device(device()));
  }

  const int device_;
  const std::string name_;
  std::int64_t free_ = 0, all_ = 0;
  at::Tensor a_, b_, c_;
  std::optional<Fp8Matrices> fp8_;  // of a_ and b_
};

}  // namespace
}  // namespace sluice

extern "C" __attribute__((visibility("default"))) sluice::GpuDevice* sluice_open_cuda_gpu(
    int device) {
  return new sluice::CudaGpu(device);
}
