// The CUDA module: a shared library beside the executable, or at SLUICE_CUDA_MODULE. The first use
// loads the module; it is never unloaded. A run on CPUs therefore loads neither libtorch_cuda nor
// any NVIDIA library. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sluice {

// Number of GPUs that the driver shows to this process (respects CUDA_VISIBLE_DEVICES); 0 without a
// driver. Creates no context on a GPU. The first call runs cuInit, so a process that forks must
// fork before.
[[nodiscard]] int visible_gpu_count();
// The lowest compute capability of those GPUs, times ten: 90 for 9.0. 0: no GPU, or not known.
[[nodiscard]] int visible_gpu_capability();
// The most multiprocessors that one of those GPUs has. 0: no GPU, or not known.
[[nodiscard]] int visible_gpu_multiprocessors();
// The least memory of the first `gpus` of those GPUs, bytes. 0: no GPU, or not known.
[[nodiscard]] std::int64_t visible_gpu_memory(int gpus);

// The reason why this process cannot use the machine's GPUs, and the remedy.
struct GpuFault {
  std::string reason, remedy;
};
// Empty if the GPUs can be used, if the machine has none, or if CUDA_VISIBLE_DEVICES hides all of
// them on purpose. Loads the module if a GPU is visible.
[[nodiscard]] const std::optional<GpuFault>& gpu_fault();

// What CUDA_VISIBLE_DEVICES takes from this process without a fault: all of the machine's GPUs, or
// some of those that the variable lists. "the driver has 2 GPUs, but CUDA_VISIBLE_DEVICES='' hides
// them". Empty: nothing.
[[nodiscard]] const std::string& hidden_gpus();
constexpr char kShowGpus[] = "unset CUDA_VISIBLE_DEVICES, or name GPUs that nvidia-smi -L lists";

// Called before autograd's first backward in this process. libtorch looks for CUDA at that moment
// and keeps the result. A module that is loaded later would fail in every autograd operation, so
// the load is refused.
void note_autograd();
// The reason why the module can no longer be loaded; empty if it can, or if it is loaded.
[[nodiscard]] std::string late_load_fault();

// Whether the module's file exists.
[[nodiscard]] bool cuda_module_is_built();

// The address of the module's function with this C name. Throws ConfigError if the module does not
// exist, no GPU is visible, late_load_fault() is not empty, or the loader fails.
[[nodiscard]] void* cuda_module_symbol(const std::string& name);

}  // namespace sluice
