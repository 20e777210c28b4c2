#include "parallel/comm/cuda_module.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "kernels/base/error.hpp"
#include "parallel/comm/communicator.hpp"
#include "parallel/comm/cuda_factories.hpp"

namespace sluice {
namespace {

constexpr char kFileName[] = "libsluice_cuda.so";

int ask_driver() {
  // The driver's own library: there wherever a GPU can be used, toolkit or not.
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return 0;
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  if (init == nullptr || count == nullptr || init(0) != 0 || count(&devices) != 0) return 0;
  return devices;
}

// SLUICE_CUDA_MODULE if set; else beside the program; else where the build puts it.
std::filesystem::path module_path() {
  if (const char* path = std::getenv("SLUICE_CUDA_MODULE"); path != nullptr && *path != '\0') {
    return path;
  }
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::filesystem::path beside = program.parent_path() / kFileName;
  if (std::filesystem::is_regular_file(beside, error)) return beside;
  std::filesystem::path built = std::filesystem::path(SLUICE_CUDA_BUILD_DIR) / kFileName;
  return std::filesystem::is_regular_file(built, error) ? built : beside;
}

void* load_module() {
  if (!cuda_module_is_built()) {
    throw ConfigError("this program was built without CUDA (" + module_path().string() +
                      " is not there); build with -DSLUICE_CUDA=ON, or use launch.backend: gloo");
  }
  if (visible_gpu_count() == 0) {
    throw ConfigError(
        "no GPU is visible to this process; check nvidia-smi and CUDA_VISIBLE_DEVICES, or use "
        "launch.backend: gloo");
  }
  // Global: libtorch finds its CUDA operators through the process's symbols.
  void* module = dlopen(module_path().c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) {
    throw ConfigError(std::string("the CUDA module cannot be loaded: ") + dlerror());
  }
  return module;
}

}  // namespace

int visible_gpu_count() {
  static const int count = ask_driver();
  return count;
}

bool cuda_module_is_built() {
  std::error_code error;
  return std::filesystem::is_regular_file(module_path(), error);
}

void* cuda_module_symbol(const std::string& name) {
  static std::mutex mutex;
  static void* module = nullptr;  // guarded by mutex; never unloaded: its code may be on any stack
  const std::lock_guard lock(mutex);
  if (module == nullptr) module = load_module();
  void* symbol = dlsym(module, name.c_str());
  if (symbol == nullptr) {
    throw ConfigError("the CUDA module " + module_path().string() + " lacks " + name +
                      "; it is of another build than this program");
  }
  return symbol;
}

std::unique_ptr<Communicator> make_nccl_communicator(const CommOptions& options) {
  const auto make =
      reinterpret_cast<MakeNcclCommunicator*>(cuda_module_symbol(kMakeNcclCommunicator));
  CommOptions control = options;
  control.group += ".control";
  CommOptions device = options;
  device.serves_rendezvous = false;  // the control group's server is there
  return std::unique_ptr<Communicator>(make(device, make_gloo_communicator(control).release()));
}

}  // namespace sluice
