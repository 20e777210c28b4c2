// CUDA graphs, in the CUDA module.
#include <ATen/cuda/MemPool.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>

#include "base/error.hpp"
#include "kernels/cuda/check_cuda.hpp"
#include "runtime/engine/cuda_errors.hpp"
#include "runtime/engine/device_graphs.hpp"
#include "runtime/engine/tiers/cuda_tiers.hpp"

namespace sluice {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

cudaStream_t current_stream_of(c10::DeviceIndex device) {
  return c10::cuda::getCurrentCUDAStream(device).stream();
}

// Without the allocator's cache there is no pool: memory of recorded tensors would go back to the
// driver before the first launch.
void check_pool_exists() {
  constexpr char kNoCache[] = "PYTORCH_NO_CUDA_MEMORY_CACHING";
  if (std::getenv(kNoCache) == nullptr) return;
  throw ConfigError(std::string("recorded steps need libtorch's cache of GPU memory, which ") +
                    kNoCache + " turns off; unset it, or set train.cuda_graphs: never");
}

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(c10::DeviceIndex device, cudaGraph_t graph) : device_(device) {
    check_cuda(cudaGraphInstantiateWithFlags(&executable_, graph, 0), "making a graph executable");
  }
  // The driver frees a graph that still runs when it has ended.
  ~CudaGraph() override { (void)cudaGraphExecDestroy(executable_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch() override {
    check_cuda(cudaGraphLaunch(executable_, current_stream_of(device_)), "launching a graph");
  }

 private:
  const c10::DeviceIndex device_;
  cudaGraphExec_t executable_ = nullptr;
};

class CudaGraphs final : public DeviceGraphs {
 public:
  explicit CudaGraphs(c10::DeviceIndex device)
      : device_(device), pool_(at::cuda::MemPool::graph_pool_handle(/*is_user_created=*/false)) {
    allocator::createOrIncrefPool(device_, pool_);
  }
  ~CudaGraphs() override { allocator::releasePool(device_, pool_); }
  CudaGraphs(const CudaGraphs&) = delete;
  CudaGraphs& operator=(const CudaGraphs&) = delete;

  void begin_pool() override {
    translated("the memory pool of graphs", [&] {
      allocator::beginAllocateToPool(
          device_, pool_,
          [own = current_stream_of(device_)](cudaStream_t stream) { return stream == own; });
    });
  }
  void end_pool() noexcept override {
    allocator::endAllocateToPool(device_, pool_);
    allocator::releasePool(device_, pool_);  // what beginAllocateToPool holds
  }

  // Relaxed: other threads and the allocator go on calling the driver.
  void begin_recording() override {
    check_cuda(cudaStreamBeginCapture(current_stream_of(device_), cudaStreamCaptureModeRelaxed),
               "recording a graph");
  }
  [[nodiscard]] std::unique_ptr<DeviceGraph> end_recording() override {
    cudaGraph_t recorded = nullptr;
    check_cuda(cudaStreamEndCapture(current_stream_of(device_), &recorded),
               "recording a graph (train.cuda_graphs: never runs without)");
    const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, decltype(&cudaGraphDestroy)> graph(
        recorded, &cudaGraphDestroy);
    return std::make_unique<CudaGraph>(device_, graph.get());
  }
  void abandon_recording() noexcept override {
    cudaGraph_t recorded = nullptr;
    if (cudaStreamEndCapture(current_stream_of(device_), &recorded) != cudaSuccess) {
      (void)cudaGetLastError();
    }
    if (recorded != nullptr) (void)cudaGraphDestroy(recorded);
  }

 private:
  const c10::DeviceIndex device_;
  const c10::MempoolId_t pool_;
};

}  // namespace
}  // namespace sluice

extern "C" __attribute__((visibility("default"))) sluice::DeviceGraphs* sluice_make_cuda_graphs(
    int device) {
  return sluice::translated("graphs of GPU " + std::to_string(device), [&] {
    sluice::check_pool_exists();
    return new sluice::CudaGraphs(static_cast<c10::DeviceIndex>(device));
  });
}
