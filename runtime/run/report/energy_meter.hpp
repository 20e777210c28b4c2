// The energy that this host has taken since a moment, where the system shows it: CPU packages (RAPL
// of /sys/class/powercap, mostly for root alone) and GPUs (NVML). Other programs on the host count
// too. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sluice {

// GPUs by NVML, the library of the driver, which is loaded here and never unloaded.
class GpuEnergy {
 public:
  // nullptr if the library or a counter is missing, or if NVML shows another number of GPUs than
  // `gpus`, because the GPUs of the run are then unknown.
  [[nodiscard]] static std::unique_ptr<GpuEnergy> open(int gpus);
  [[nodiscard]] std::optional<double> joules() const;  // of all GPUs since the driver was loaded

 private:
  GpuEnergy() = default;
  std::vector<void*> devices_;
  int (*read_)(void*, unsigned long long*) = nullptr;
};

class EnergyMeter {
 public:
  // `gpus`: of the run on this host; 0: none. `powercap`: the system's folder.
  explicit EnergyMeter(int gpus, const std::string& powercap = "/sys/class/powercap");

  // Reads the counters of the CPU, which overflow after minutes of a large CPU's load. Call it at
  // least once a minute.
  void sample();
  // Joules up to the last sample; nullopt: unreadable.
  [[nodiscard]] std::optional<double> cpu_joules() const;
  [[nodiscard]] std::optional<double> gpu_joules() const;  // up to now

 private:
  struct Package {
    std::string counter;  // the file
    std::int64_t last_uj = 0;
    std::int64_t range_uj = 0;  // the counter starts again from 0 after this value
  };

  std::vector<Package> packages_;
  double cpu_uj_ = 0;
  std::unique_ptr<GpuEnergy> gpu_;
  double gpu_start_ = 0;
};

}  // namespace sluice
