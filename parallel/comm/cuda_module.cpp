#include "parallel/comm/cuda_module.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/posix/module_file.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/cuda_factories.hpp"
#include "parallel/comm/gpu_driver.hpp"
#include "parallel/comm/nccl_link.hpp"

namespace sluice {
namespace {

constexpr char kFileName[] = "libsluice_cuda.so";

std::atomic<bool> autograd_ran{false};
std::atomic<bool> loaded{false};

// The value of CUDA_VISIBLE_DEVICES; nullopt: not set.
std::optional<std::string> shown_gpus() {
  const char* shown = std::getenv("CUDA_VISIBLE_DEVICES");
  return shown == nullptr ? std::nullopt : std::optional<std::string>(shown);
}

std::string setting_of(const std::string& shown) { return "CUDA_VISIBLE_DEVICES='" + shown + "'"; }

// True if CUDA_VISIBLE_DEVICES hides all GPUs on purpose.
bool gpus_are_hidden() {
  const std::optional<std::string> shown = shown_gpus();
  return shown && hides_gpus(*shown);
}

// "the driver has 2 GPUs", of a machine whose driver shows this process none; "": it has none.
std::string machine_gpus() {
  const int gpus = managed_gpu_count();
  if (gpus > 0) return "the driver has " + counted(gpus, "GPU");
  const std::string device = gpu_device_file("/dev", true);
  return device.empty() ? "" : device + " exists";
}

// For a driver that shows no GPU: on a machine with one, CUDA_VISIBLE_DEVICES is mistyped.
std::optional<GpuFault> wrong_names() {
  const std::optional<std::string> shown = shown_gpus();
  if (!shown || hides_gpus(*shown)) return std::nullopt;
  const std::string gpus = machine_gpus();
  if (gpus.empty()) return std::nullopt;
  return GpuFault{gpus + ", but " + setting_of(*shown) +
                      " hides all GPUs: its first name is none of a GPU here",
                  kShowGpus};
}

std::string find_hidden_gpus() {
  const std::optional<std::string> shown = shown_gpus();
  const DriverAnswer& driver = driver_answer();
  if (!shown || !driver.error.empty()) return {};
  if (driver.gpus.empty()) {
    const std::string gpus = hides_gpus(*shown) ? machine_gpus() : "";
    return gpus.empty() ? "" : gpus + ", but " + setting_of(*shown) + " hides all GPUs";
  }
  const int seen = static_cast<int>(driver.gpus.size());
  const int listed = listed_gpus(*shown);
  if (listed <= seen) return {};
  return setting_of(*shown) + " lists " + counted(listed, "GPU") + ", and the driver shows " +
         std::to_string(seen) + ": it takes the names before the first wrong one";
}

std::filesystem::path module_path() {
  return module_file("SLUICE_CUDA_MODULE", kFileName, SLUICE_CUDA_BUILD_DIR);
}

std::string missing_module() {
  const std::string why = SLUICE_CUDA_ABSENT;  // reason found by CMake; "" if CUDA was found
  return "the CUDA module " + module_path().string() + " is not there" +
         (why.empty() ? "" : ": this program was built without CUDA, " + why);
}

// Why the launcher of an installed package forbids the module, e.g. since the installed torch is
// for CPUs; "" if it does not.
std::string launcher_refusal() {
  const char* why = std::getenv("SLUICE_CUDA_REFUSED");
  return why == nullptr ? "" : why;
}

void* load_module() {
  if (const std::string why = launcher_refusal(); !why.empty()) {
    throw ConfigError("the CUDA module cannot be used: " + why + "; or use launch.backend: gloo");
  }
  if (!cuda_module_is_built()) {
    throw ConfigError(missing_module() +
                      "; build with -DSLUICE_CUDA=ON, or use launch.backend: gloo");
  }
  if (visible_gpu_count() == 0) {
    const std::string& hidden = hidden_gpus();
    throw ConfigError("no GPU is visible to this process" +
                      (hidden.empty() ? "; check nvidia-smi and CUDA_VISIBLE_DEVICES"
                                      : ": " + hidden + "; " + kShowGpus) +
                      ", or use launch.backend: gloo");
  }
  if (const std::string fault = late_load_fault(); !fault.empty()) throw ConfigError(fault);
  // RTLD_GLOBAL: libtorch finds its CUDA operators through the process's symbols.
  void* module = dlopen(module_path().c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) {
    throw ConfigError(std::string("the CUDA module cannot be loaded: ") + dlerror());
  }
  loaded.store(true);
  return module;
}

// The module, loaded once. Throws ConfigError.
void* loaded_module() {
  static std::mutex mutex;
  // Guarded by mutex. Never unloaded: its code may be on any thread's stack.
  static void* module = nullptr;
  const std::lock_guard lock(mutex);
  if (module == nullptr) module = load_module();
  return module;
}

std::string seen_gpus(const DriverAnswer& driver) {
  return driver.gpus.size() == 1 ? "1 GPU is visible, and "
                                 : std::to_string(driver.gpus.size()) + " GPUs are visible, and ";
}

// The kernels of the module, flash attention and bf16 need Ampere.
std::optional<GpuFault> old_gpu(const DriverAnswer& driver) {
  constexpr int kLeast = 80;
  for (const VisibleGpu& gpu : driver.gpus) {
    if (gpu.capability == 0 || gpu.capability >= kLeast) continue;
    const std::string which =
        gpu.name.empty() ? "its compute capability is " : gpu.name + " has compute capability ";
    return GpuFault{seen_gpus(driver) + which + capability_text(gpu.capability) +
                        ", less than the 8.0 (Ampere) that this program needs",
                    "show other GPUs by CUDA_VISIBLE_DEVICES, or none by an empty one"};
  }
  return std::nullopt;
}

// A driver serves programs of its own major version of CUDA and of older ones.
std::optional<GpuFault> old_driver(const DriverAnswer& driver, void* module) {
  constexpr int kMajor = 1000;
  const auto version = reinterpret_cast<int (*)(int*)>(dlsym(module, "cudaRuntimeGetVersion"));
  int runtime = 0;
  if (version == nullptr || version(&runtime) != 0 || driver.cuda == 0) return std::nullopt;
  if (driver.cuda / kMajor >= runtime / kMajor) return std::nullopt;
  return GpuFault{
      seen_gpus(driver) + "the driver serves CUDA " + cuda_version_text(driver.cuda) +
          " and older, but libtorch here is made for CUDA " + cuda_version_text(runtime),
      "update NVIDIA's driver (580 or newer serves CUDA 13; nvidia-smi shows the installed one)"};
}

std::optional<GpuFault> find_gpu_fault() {
  const DriverAnswer& driver = driver_answer();
  if (!driver.error.empty()) {
    const std::string device = gpu_device_file("/dev", driver.installed);
    if (device.empty() || gpus_are_hidden()) return std::nullopt;
    return GpuFault{device + " exists, but the driver does not answer: " + driver.error,
                    "install NVIDIA's driver, or show it to this container (nvidia-smi lists "
                    "the GPUs then)"};
  }
  if (driver.gpus.empty()) return wrong_names();
  if (std::optional<GpuFault> old = old_gpu(driver)) return old;
  const std::string seen = seen_gpus(driver);
  if (const std::string why = launcher_refusal(); !why.empty()) {
    return GpuFault{seen + why, "install what serves the GPU (docs/install.md)"};
  }
  if (!cuda_module_is_built()) {
    return GpuFault{seen + missing_module(),
                    "build again with a CUDA toolkit (nvcc) installed and without SLUICE_CUDA=OFF "
                    "(./sluice builds the module), or name the module in SLUICE_CUDA_MODULE"};
  }
  try {
    return old_driver(driver, loaded_module());
  } catch (const ConfigError& error) {
    return GpuFault{seen + error.what(),
                    "install the library that is missing (./sluice fetches NVIDIA's), or build "
                    "again"};
  }
}

}  // namespace

int visible_gpu_count() { return static_cast<int>(driver_answer().gpus.size()); }

int visible_gpu_capability() {
  int least = 0;
  for (const VisibleGpu& gpu : driver_answer().gpus) {
    if (gpu.capability == 0) return 0;
    least = least == 0 ? gpu.capability : std::min(least, gpu.capability);
  }
  return least;
}

int visible_gpu_multiprocessors() {
  int most = 0;
  for (const VisibleGpu& gpu : driver_answer().gpus) most = std::max(most, gpu.multiprocessors);
  return most;
}

std::int64_t visible_gpu_memory(int gpus) {
  std::int64_t least = 0;
  for (const VisibleGpu& gpu : driver_answer().gpus) {
    if (gpus-- <= 0) break;
    if (gpu.memory_bytes == 0) return 0;
    least = least == 0 ? gpu.memory_bytes : std::min(least, gpu.memory_bytes);
  }
  return least;
}

const std::optional<GpuFault>& gpu_fault() {
  static const std::optional<GpuFault> fault = find_gpu_fault();
  return fault;
}

const std::string& hidden_gpus() {
  static const std::string text = find_hidden_gpus();
  return text;
}

void note_autograd() { autograd_ran.store(true); }

std::string late_load_fault() {
  if (loaded.load() || !autograd_ran.load()) return {};
  return "the CUDA module is loaded too late: libtorch's autograd has run a backward in this "
         "process "
         "already, and from then on finds no GPU; call use_gpu() "
         "(runtime/engine/device_access.hpp) "
         "before the first backward or plan of autograd's units";
}

bool cuda_module_is_built() {
  std::error_code error;
  return std::filesystem::is_regular_file(module_path(), error);
}

void* cuda_module_symbol(const std::string& name) {
  void* symbol = dlsym(loaded_module(), name.c_str());
  if (symbol == nullptr) {
    throw ConfigError("the CUDA module " + module_path().string() + " lacks " + name +
                      "; it is of another build than this program");
  }
  return symbol;
}

namespace {

std::unique_ptr<Communicator> make_nccl(const CommOptions& options, NcclSettings settings) {
  settings.failpoint = &failpoint;
  const auto make =
      reinterpret_cast<MakeNcclCommunicator*>(cuda_module_symbol(kMakeNcclCommunicator));
  CommOptions control = options;
  control.group += ".control";
  // The rank whose device waits in vain names the operation, before ranks that wait for its control
  // data give up.
  control.timeout += control.timeout / 4;
  CommOptions device = options;
  device.serves_rendezvous = false;  // the control group serves
  std::unique_ptr<Communicator> host = options.size == 1
                                           ? std::move(make_local_communicators(1).front())
                                           : make_gloo_communicator(control);
  return std::unique_ptr<Communicator>(make(device, host.release(), settings));
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(const CommOptions& options) {
  return make_nccl(options, {.most_channels = kGroupChannels});
}
std::unique_ptr<Communicator> make_nccl_link(const CommOptions& options) {
  return make_nccl(options, {.most_channels = kLinkChannels, .one_way = true});
}
std::unique_ptr<Communicator> make_nccl_world(const CommOptions& options) {
  return make_nccl(options, {.most_channels = kGroupChannels, .connects_late = true});
}

}  // namespace sluice
