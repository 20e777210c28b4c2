// Stands for NVIDIA's driver library where the program only counts GPUs: FAKE_GPUS of them.
#include <cstdlib>

extern "C" {

int cuInit(unsigned /*flags*/) {
  const char* status = std::getenv("FAKE_DRIVER_STATUS");
  return status == nullptr ? 0 : std::atoi(status);
}

int cuDeviceGetCount(int* count) {
  const char* gpus = std::getenv("FAKE_GPUS");
  *count = gpus == nullptr ? 1 : std::atoi(gpus);
  return 0;
}
}
