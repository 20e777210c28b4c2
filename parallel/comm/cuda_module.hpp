// The CUDA half of the program: a shared library beside the executable (or in SLUICE_CUDA_MODULE),
// loaded the first time it is asked for and never unloaded. So a run on CPUs neither loads
// libtorch_cuda nor needs a library of NVIDIA's. Thread-safe.
#pragma once

#include <optional>
#include <string>

namespace sluice {

// GPUs the driver shows this process (CUDA_VISIBLE_DEVICES respected). 0 where there is no driver.
// Starts nothing on them. Calls cuInit the first time: a process that forks has to do so before.
[[nodiscard]] int visible_gpu_count();

// Why this process cannot use the machine's GPUs, and the remedy.
struct GpuFault {
  std::string reason, remedy;
};
// Empty where the GPUs can be used, and where the machine has none or CUDA_VISIBLE_DEVICES hides
// all of them. Loads the module where a GPU is visible.
[[nodiscard]] const std::optional<GpuFault>& gpu_fault();

// Told by autograd before its first backward in this process. libtorch then keeps what it found of
// CUDA: a module loaded later is refused, since every operation of autograd on its tensors would
// fail.
void note_autograd();
// The reason why the module cannot be loaded any more; empty: it can, or it has been.
[[nodiscard]] std::string late_load_fault();

// Whether the module's file is there.
[[nodiscard]] bool cuda_module_is_built();

// The module's function of that C name. Throws ConfigError: "the module is not there", "no GPU is
// visible", late_load_fault(), or what the loader says.
[[nodiscard]] void* cuda_module_symbol(const std::string& name);

}  // namespace sluice
