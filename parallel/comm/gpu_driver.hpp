// Answers of NVIDIA's driver about this machine's GPUs. No context is created on a GPU.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// "8.6" of a compute capability of 86.
[[nodiscard]] inline std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}
// "13.2" of CUDA's version 13020.
[[nodiscard]] inline std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

struct VisibleGpu {
  std::string name{};             // "NVIDIA GeForce RTX 3090"; "": not known
  int capability = 0;             // compute capability times ten, 86 for 8.6; 0: not known
  int multiprocessors = 0;        // 0: not known
  std::int64_t memory_bytes = 0;  // all of the card's memory; 0: not known
};

struct DriverAnswer {
  std::vector<VisibleGpu> gpus{};  // respects CUDA_VISIBLE_DEVICES
  bool installed = false;          // the driver's library is here
  std::string error{};             // why the driver does not answer; empty: it answers
  int cuda = 0;  // newest CUDA that the driver serves, 13020 for 13.2; 0: not known
};

// Asks the driver once. Runs cuInit, so a process that forks must fork before. Thread-safe.
[[nodiscard]] const DriverAnswer& driver_answer();

// Number of GPUs that the driver manages, whatever CUDA_VISIBLE_DEVICES says: the answer of NVML,
// the driver's library for management. 0: none, or NVML is not installed. Thread-safe.
[[nodiscard]] int managed_gpu_count();

// Whether a value of CUDA_VISIBLE_DEVICES hides all GPUs on purpose: empty, a negative number,
// none, void, or SLURM's NoDevFiles.
[[nodiscard]] bool hides_gpus(std::string_view visible_devices);

// Number of GPUs that a value of CUDA_VISIBLE_DEVICES lists. A negative number ends the list.
[[nodiscard]] int listed_gpus(std::string_view visible_devices);

// The file in `devices` ("/dev") by which a process reaches an NVIDIA GPU, such as "/dev/nvidia0";
// "" if there is none. WSL2 has /dev/dxg for the GPU of any vendor: it counts where NVIDIA's
// driver is installed.
[[nodiscard]] std::string gpu_device_file(const std::filesystem::path& devices,
                                          bool driver_installed);

}  // namespace sluice
