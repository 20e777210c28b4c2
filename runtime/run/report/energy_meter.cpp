#include "runtime/run/report/energy_meter.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <system_error>

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (!(file >> value) || value < 0) return std::nullopt;
  return value;
}

// "intel-rapl:0", a package; not "intel-rapl:0:1", a part of it, nor "intel-rapl-mmio:0", the same
// counter again.
bool is_package(const std::string& name) {
  constexpr std::string_view kPrefix = "intel-rapl:";
  return name.starts_with(kPrefix) && name.find(':', kPrefix.size()) == std::string::npos;
}

template <typename Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::unique_ptr<GpuEnergy> GpuEnergy::open(int gpus) {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  int (*init)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, void**) = nullptr;
  std::unique_ptr<GpuEnergy> energy(new GpuEnergy);
  unsigned there = 0;
  const bool found = find(library, "nvmlInit_v2", init) &&
                     find(library, "nvmlDeviceGetCount_v2", count) &&
                     find(library, "nvmlDeviceGetHandleByIndex_v2", handle) &&
                     find(library, "nvmlDeviceGetTotalEnergyConsumption", energy->read_);
  if (!found || init() != 0 || count(&there) != 0) return nullptr;
  if (static_cast<int>(there) != gpus) return nullptr;
  for (unsigned i = 0; i < there; ++i) {
    void* device = nullptr;
    if (handle(i, &device) != 0) return nullptr;
    energy->devices_.push_back(device);
  }
  if (!energy->joules()) return nullptr;
  return energy;
}

std::optional<double> GpuEnergy::joules() const {
  double sum = 0;
  for (void* device : devices_) {
    unsigned long long millijoules = 0;
    if (read_(device, &millijoules) != 0) return std::nullopt;
    sum += static_cast<double>(millijoules) * 1e-3;
  }
  return sum;
}

EnergyMeter::EnergyMeter(int gpus, const std::string& powercap) {
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(powercap, failed)) {
    if (!is_package(entry.path().filename().string())) continue;
    Package package{.counter = (entry.path() / "energy_uj").string()};
    const auto now = number_in(package.counter);
    const auto range = number_in((entry.path() / "max_energy_range_uj").string());
    if (!now || !range) continue;
    package.last_uj = *now;
    package.range_uj = *range;
    packages_.push_back(package);
  }
  if (gpus > 0) gpu_ = GpuEnergy::open(gpus);
  if (gpu_) gpu_start_ = gpu_->joules().value_or(0);
}

void EnergyMeter::sample() {
  for (Package& package : packages_) {
    const std::int64_t now = number_in(package.counter).value_or(package.last_uj);
    const std::int64_t passed = now - package.last_uj;
    cpu_uj_ += static_cast<double>(passed < 0 ? passed + package.range_uj : passed);
    package.last_uj = now;
  }
}

std::optional<double> EnergyMeter::cpu_joules() const {
  if (packages_.empty()) return std::nullopt;
  return cpu_uj_ * 1e-6;
}

std::optional<double> EnergyMeter::gpu_joules() const {
  const std::optional<double> now = gpu_ ? gpu_->joules() : std::nullopt;
  if (!now) return std::nullopt;
  return *now - gpu_start_;
}

}  // namespace sluice
