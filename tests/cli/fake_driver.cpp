// Stands for NVIDIA's driver library where the program only asks what GPUs there are: FAKE_GPUS of
// them, of compute capability FAKE_CAPABILITY (times ten). Also stands for NVML, which counts
// FAKE_MANAGED_GPUS.
#include <cstdlib>

namespace {

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace

extern "C" {

int cuInit(unsigned /*flags*/) { return number("FAKE_DRIVER_STATUS", 0); }

int cuDeviceGetCount(int* count) {
  *count = number("FAKE_GPUS", 1);
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int /*device*/) {
  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT and ..._COMPUTE_CAPABILITY_MAJOR
  constexpr int kMultiprocessors = 16, kMajor = 75, kOfAnH100 = 132;
  const int capability = number("FAKE_CAPABILITY", 90);
  *value = attribute == kMultiprocessors ? kOfAnH100
           : attribute == kMajor         ? capability / 10
                                         : capability % 10;
  return 0;
}

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(number("FAKE_MANAGED_GPUS", 0));
  return 0;
}
}
