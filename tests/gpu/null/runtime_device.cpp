// The CUDA runtime's devices, errors and limits: those of an H100 of 80 GB.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <map>

#include "tests/gpu/null/graphs.hpp"
#include "tests/gpu/null/memory.hpp"
#include "tests/gpu/null/queue.hpp"
#include "tests/gpu/null/record.hpp"
#include "tests/gpu/null/runtime.hpp"

namespace null_gpu {
namespace {

thread_local int device_of_thread = 0;
thread_local cudaError_t last_error = cudaSuccess;

constexpr int kVersion = 13000;
constexpr int kThreadsOfBlock = 1024;
constexpr int kLargestGridY = 65535;
constexpr int kSharedBytes = 49152, kReservedSharedBytes = 1024;
constexpr int kL2Bytes = 52'428'800;
constexpr int kLargest = 2147483647;

// Of a multiprocessor, by the table of compute capabilities in NVIDIA's CUDA C++ Programming Guide.
struct ProcessorLimits {
  int shared_bytes, threads, blocks;
};
ProcessorLimits limits() {
  constexpr int kKiB = 1024;
  switch (capability()) {
    case 75:
      return {64 * kKiB, 1024, 16};
    case 80:
      return {164 * kKiB, 2048, 32};
    case 86:
      return {100 * kKiB, 1536, 16};
    case 89:
    case 120:
      return {100 * kKiB, 1536, 24};
    default:
      return {228 * kKiB, 2048, 32};
  }
}
int most_shared_bytes() { return limits().shared_bytes - kReservedSharedBytes; }  // of a block

// A driver serves its own major version of CUDA and older ones.
bool driver_is_old() { return driver_version() / 1000 < kVersion / 1000; }

const std::map<int, int>& attributes() {
  static const auto* const all = new std::map<int, int>{
      {cudaDevAttrComputeCapabilityMajor, capability() / 10},
      {cudaDevAttrComputeCapabilityMinor, capability() % 10},
      {cudaDevAttrMultiProcessorCount, multiprocessors()},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxThreadsPerBlock, kThreadsOfBlock},
      {cudaDevAttrMaxThreadsPerMultiProcessor, limits().threads},
      {cudaDevAttrMaxBlocksPerMultiprocessor, limits().blocks},
      {cudaDevAttrMaxSharedMemoryPerBlock, kSharedBytes},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, most_shared_bytes()},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, limits().shared_bytes},
      {cudaDevAttrReservedSharedMemoryPerBlock, kReservedSharedBytes},
      {cudaDevAttrMaxRegistersPerBlock, 65536},
      {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
      {cudaDevAttrL2CacheSize, kL2Bytes},
      {cudaDevAttrMaxGridDimX, kLargest},
      {cudaDevAttrMaxGridDimY, kLargestGridY},
      {cudaDevAttrMaxGridDimZ, kLargestGridY},
      {cudaDevAttrTextureAlignment, 512},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrCooperativeLaunch, 1},
      {cudaDevAttrMemoryPoolsSupported, 0},
  };
  return *all;
}

}  // namespace

int current_device() { return device_of_thread; }

void need_context() { note_context(device_of_thread); }

cudaError_t remembered(cudaError_t error) { return last_error = error; }

cudaError_t refused(const std::string& what) {
  fault(what);
  return remembered(cudaErrorInvalidValue);
}

}  // namespace null_gpu

using namespace null_gpu;  // NOLINT: this file is bodies of C functions

extern "C" {

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNotReady:
      return "device not ready";
    default:
      return "refused by the null GPU, which printed the reason";
  }
}
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorInvalidValue";
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (driver_is_old()) return remembered(cudaErrorInsufficientDriver);
  *count = device_count();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = device_of_thread;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (driver_is_old()) return remembered(cudaErrorInsufficientDriver);
  if (device < 0 || device >= device_count()) return remembered(cudaErrorInvalidDevice);
  device_of_thread = device;
  need_context();  // since CUDA 12
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver_version();
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  std::memset(p, 0, sizeof *p);
  std::snprintf(p->name, sizeof p->name, "NVIDIA H100 80GB HBM3 (null)");
  p->totalGlobalMem = device_bytes_total();
  p->major = capability() / 10;
  p->minor = capability() % 10;
  p->multiProcessorCount = multiprocessors();
  p->warpSize = 32;
  p->maxThreadsPerBlock = kThreadsOfBlock;
  p->maxThreadsPerMultiProcessor = limits().threads;
  p->maxBlocksPerMultiProcessor = limits().blocks;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = kThreadsOfBlock;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = kLargest;
  p->maxGridSize[1] = p->maxGridSize[2] = kLargestGridY;
  p->sharedMemPerBlock = kSharedBytes;
  p->sharedMemPerBlockOptin = static_cast<std::size_t>(most_shared_bytes());
  p->sharedMemPerMultiprocessor = static_cast<std::size_t>(limits().shared_bytes);
  p->reservedSharedMemPerBlock = kReservedSharedBytes;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->l2CacheSize = kL2Bytes;
  p->totalConstMem = 65536;
  p->memPitch = kLargest;
  p->textureAlignment = 512;
  p->asyncEngineCount = 3;
  p->unifiedAddressing = p->concurrentKernels = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const auto known = attributes().find(attribute);
  *value = known == attributes().end() ? 0 : known->second;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  count_wait(Wait::kDevice);
  need_context();
  if (any_capturing()) return refused("cudaDeviceSynchronize while a stream captures");
  finish_device();
  return cudaSuccess;
}

// libtorch asks for functions of newer drivers, and does without.
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** pointer, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *pointer = nullptr;
  if (result != nullptr) *result = cudaDriverEntryPointSymbolNotFound;
  return cudaErrorSymbolNotFound;
}

}  // extern "C"
