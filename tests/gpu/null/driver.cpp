// The null driver: what the program and libtorch ask before they take the CUDA runtime.
#include <cstddef>
#include <cstdio>

#include "tests/gpu/null/memory.hpp"
#include "tests/gpu/null/record.hpp"

extern "C" {

int cuInit(unsigned) { return 0; }

int cuDeviceGetCount(int* count) {
  *count = null_gpu::device_count();
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT and ..._COMPUTE_CAPABILITY_...
  constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76;
  *value = attribute == kMultiprocessors ? null_gpu::multiprocessors()
           : attribute == kMajor         ? null_gpu::capability() / 10
           : attribute == kMinor         ? null_gpu::capability() % 10
                                         : 0;
  return 0;
}
int cuDeviceGetName(char* name, int length, int) {
  std::snprintf(name, static_cast<std::size_t>(length), "NVIDIA H100 80GB HBM3 (null)");
  return 0;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = null_gpu::device_bytes_total();
  return 0;
}
int cuDriverGetVersion(int* version) {
  *version = null_gpu::driver_version();
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "refused by the null driver";
  return 0;
}
int cuCtxGetCurrent(void** context) {
  static int only = 0;
  *context = &only;
  return 0;
}
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  if (flags != nullptr) *flags = 0;
  if (active != nullptr) *active = null_gpu::has_context(device) ? 1 : 0;
  return 0;
}

}  // extern "C"
