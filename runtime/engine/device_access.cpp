#include "runtime/engine/device_access.hpp"

#include <utility>

#include "parallel/comm/cuda_module.hpp"
#include "runtime/engine/tiers/cuda_tiers.hpp"

namespace sluice {

std::shared_ptr<DeviceCopies> device_copies(const TierOptions& options, at::Device device) {
  if (options.make_copies) return options.make_copies();
  if (!device.is_cuda()) return make_host_copies();
  const auto make = reinterpret_cast<MakeCudaCopies*>(cuda_module_symbol(kMakeCudaCopies));
  return std::shared_ptr<DeviceCopies>(make(device.index()));
}

std::unique_ptr<DeviceGraphs> device_graphs(at::Device device) {
  const auto make = reinterpret_cast<MakeCudaGraphs*>(cuda_module_symbol(kMakeCudaGraphs));
  return std::unique_ptr<DeviceGraphs>(make(device.index()));
}

std::unique_ptr<DeviceNorm> device_norm(at::Device device,
                                        std::span<const cuda::SquaresSpan> sizes) {
  const auto make = reinterpret_cast<MakeCudaNorm*>(cuda_module_symbol(kMakeCudaNorm));
  return std::unique_ptr<DeviceNorm>(make(device.index(), sizes));
}

std::unique_ptr<DeviceEvents> device_events(at::Device device) {
  const auto make = reinterpret_cast<MakeCudaEvents*>(cuda_module_symbol(kMakeCudaEvents));
  return std::unique_ptr<DeviceEvents>(make(device.index()));
}

TierOptions with_dma(TierOptions options, at::Device device) {
  if (options.dma_pages || !device.is_cuda()) return options;
  const auto make = reinterpret_cast<MakeCudaPages*>(cuda_module_symbol(kMakeCudaPages));
  options.dma_pages = std::shared_ptr<PageSource>(make(options.host_pages));
  return options;
}

UpdateKernel device_update(const OptimizerRule& rule, at::Device device) {
  if (!device.is_cuda()) {
    return [update = rule.update](std::span<const UpdateSpan> spans, const cuda::StepClip*) {
      for (const UpdateSpan& span : spans) update(span);
    };
  }
  const auto launch = reinterpret_cast<CudaUpdate*>(cuda_module_symbol(rule.cuda_symbol));
  return
      [launch, index = device.index()](std::span<const UpdateSpan> spans,
                                       const cuda::StepClip* clip) { launch(spans, index, clip); };
}

std::string gpu_name(int index) {
  std::string name;
  reinterpret_cast<GpuName*>(cuda_module_symbol(kGpuName))(index, name);
  return name;
}

void use_gpu(int index) { reinterpret_cast<UseGpu*>(cuda_module_symbol(kUseGpu))(index); }

}  // namespace sluice
