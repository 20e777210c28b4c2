#include "parallel/comm/gpu_driver.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <system_error>

namespace sluice {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";
constexpr char kManagement[] = "libnvidia-ml.so.1";
constexpr int kNoDevice = 100;       // CUDA_ERROR_NO_DEVICE: no GPU, or all are hidden
constexpr int kInvalidDevice = 101;  // CUDA_ERROR_INVALID_DEVICE: of a list that names a GPU twice

// A library of the driver. It exists wherever a GPU can be used, with or without the toolkit.
class Driver {
 public:
  explicit Driver(const char* library = kLibrary)
      : library_(dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) error_ = dlerror();
  }

  [[nodiscard]] const std::string& error() const { return error_; }

  // CUDA's status of the function with this name; kMissing if the library lacks the function.
  static constexpr int kMissing = -1;
  template <class... Arguments>
  [[nodiscard]] int call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
    return function == nullptr ? kMissing : function(arguments...);
  }

 private:
  void* const library_;  // never closed
  std::string error_;
};

VisibleGpu gpu_at(const Driver& driver, int index) {
  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT and ..._COMPUTE_CAPABILITY_...
  constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76;
  VisibleGpu gpu;
  int device = 0, major = 0, minor = 0;
  if (driver.call("cuDeviceGet", &device, index) != 0) return gpu;
  if (driver.call("cuDeviceGetAttribute", &major, kMajor, device) == 0 &&
      driver.call("cuDeviceGetAttribute", &minor, kMinor, device) == 0) {
    gpu.capability = 10 * major + minor;
  }
  int count = 0;
  if (driver.call("cuDeviceGetAttribute", &count, kMultiprocessors, device) == 0) {
    gpu.multiprocessors = count;
  }
  std::array<char, 128> name{};
  const auto length = static_cast<int>(name.size()) - 1;
  if (driver.call("cuDeviceGetName", name.data(), length, device) == 0) gpu.name = name.data();
  std::size_t bytes = 0;
  if (driver.call("cuDeviceTotalMem_v2", &bytes, device) == 0) {
    gpu.memory_bytes = static_cast<std::int64_t>(bytes);
  }
  return gpu;
}

DriverAnswer ask_driver() {
  const Driver driver;
  if (!driver.error().empty()) return {.error = driver.error()};
  DriverAnswer answer{.installed = true};
  int count = 0;
  int status = driver.call("cuInit", 0U);
  if (status == 0) status = driver.call("cuDeviceGetCount", &count);
  if (status == Driver::kMissing) {
    answer.error = std::string(kLibrary) + " lacks cuInit or cuDeviceGetCount";
    return answer;
  }
  const bool is_listed = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  if (status == kNoDevice || (status == kInvalidDevice && is_listed)) return answer;
  if (status != 0) {
    answer.error = std::string(kLibrary) + " ended with CUDA error " + std::to_string(status);
    return answer;
  }
  if (driver.call("cuDriverGetVersion", &answer.cuda) != 0) answer.cuda = 0;
  for (int i = 0; i < count; ++i) answer.gpus.push_back(gpu_at(driver, i));
  return answer;
}

int count_managed_gpus() {
  const Driver management(kManagement);
  unsigned count = 0;
  if (!management.error().empty() || management.call("nvmlInit_v2") != 0) return 0;
  const int status = management.call("nvmlDeviceGetCount_v2", &count);
  (void)management.call("nvmlShutdown");
  return status == 0 ? static_cast<int>(count) : 0;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

}  // namespace

const DriverAnswer& driver_answer() {
  static const DriverAnswer answer = ask_driver();
  return answer;
}

int managed_gpu_count() {
  static const int gpus = count_managed_gpus();
  return gpus;
}

bool hides_gpus(std::string_view visible_devices) {
  const std::string_view value = trimmed(visible_devices);
  std::string word(value);
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return value.empty() || value.front() == '-' || word == "none" || word == "void" ||
         word == "nodevfiles";
}

int listed_gpus(std::string_view visible_devices) {
  int gpus = 0;
  for (std::string_view rest = visible_devices; !rest.empty();) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const std::string_view name = trimmed(rest.substr(0, end));
    if (name.starts_with('-')) break;
    if (!name.empty()) ++gpus;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return gpus;
}

std::string gpu_device_file(const std::filesystem::path& devices, bool driver_installed) {
  const std::string prefix = "nvidia";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(devices, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.size() > prefix.size() &&
        name.find_first_not_of("0123456789", prefix.size()) == std::string::npos) {
      return entry.path().string();
    }
  }
  const std::filesystem::path of_wsl = devices / "dxg";
  return driver_installed && std::filesystem::exists(of_wsl, error) ? of_wsl.string() : "";
}

}  // namespace sluice
