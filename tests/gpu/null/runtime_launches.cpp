// The CUDA runtime's kernels: registration by name, limits of a launch, launches that do nothing.
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/gpu/null/graphs.hpp"
#include "tests/gpu/null/launches.hpp"
#include "tests/gpu/null/queue.hpp"
#include "tests/gpu/null/record.hpp"
#include "tests/gpu/null/runtime.hpp"

namespace null_gpu {
namespace {

struct Names {
  std::mutex mutex;
  std::map<const void*, std::string> by_function;
};

Names& names() {
  static auto* const all = new Names;
  return *all;
}

std::string name_of(const void* function) {
  const std::lock_guard lock(names().mutex);
  const auto found = names().by_function.find(function);
  return found == names().by_function.end() ? "(not registered)" : found->second;
}

std::string text(dim3 d) {
  return std::to_string(d.x) + " x " + std::to_string(d.y) + " x " + std::to_string(d.z);
}

struct Launch {
  const void* function = nullptr;
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  const void* stream = nullptr;
};

bool within_limits(const Launch& launch) {
  constexpr unsigned kLargestGrid = 65535, kThreads = 1024, kBlockZ = 64, kLargestX = 2147483647;
  constexpr std::size_t kSharedBytes = 232448;
  const dim3 &g = launch.grid, &b = launch.block;
  const bool some = g.x > 0 && g.y > 0 && g.z > 0 && b.x > 0 && b.y > 0 && b.z > 0;
  return some && g.x <= kLargestX && g.y <= kLargestGrid && g.z <= kLargestGrid && b.z <= kBlockZ &&
         std::size_t{b.x} * b.y * b.z <= kThreads && launch.shared_bytes <= kSharedBytes;
}

// A launch within the limits is counted, or recorded by the stream's graph.
cudaError_t counted(const std::string& name, const Launch& launch) {
  if (!within_limits(launch)) {
    fault(name + " is launched beyond the hardware's limits: grid " + text(launch.grid) +
          ", block " + text(launch.block) + ", " + std::to_string(launch.shared_bytes) +
          " bytes of shared memory");
    return remembered(cudaErrorInvalidConfiguration);
  }
  if (device_of_stream(launch.stream) != current_device()) {
    fault(name + " is launched into a stream of another card than the thread's");
    return remembered(cudaErrorInvalidResourceHandle);
  }
  if (!recorded_kernel(launch.stream, name)) count_launch(name, launch.stream);
  return cudaSuccess;
}

// Once for each kernel.
void report_missing(const std::string& name) {
  static std::mutex mutex;
  static auto* const missing = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (missing->insert(name).second) fault("kernel " + demangled(name) + " is not computed");
}

// Of the thread.
thread_local std::int64_t replacements = 0, replaced = 0;

// A driver loads a kernel's code at its first launch, and a full card has no room for it.
bool finds_no_room() {
  static const std::uint64_t full =
      setting("NULL_GPU_FULL_AT", std::numeric_limits<std::uint64_t>::max());
  static std::atomic<std::uint64_t> launches{0};
  return launches++ == full;
}

cudaError_t launched(const Launch& launch) {
  need_context();
  if (finds_no_room()) return remembered(cudaErrorMemoryAllocation);
  const std::string name = name_of(launch.function);
  const cudaError_t status = counted(name, launch);
  if (replacements > 0) {
    ++replaced;
  } else if (status == cudaSuccess && computes()) {
    report_missing(name);
  }
  return status;
}

// What <<<grid, block>>> leaves for the stub that nvcc writes for the kernel.
thread_local std::vector<Launch> configurations;

}  // namespace

cudaError_t launch_computed(const ComputedLaunch& launch) {
  const cudaError_t status = counted(
      launch.kernel, {nullptr, launch.grid, launch.block, launch.shared_bytes, launch.stream});
  if (status == cudaSuccess) enqueue(launch.stream, launch.task);
  return status;
}

ReplacedLaunches::ReplacedLaunches() : before_(replaced) { ++replacements; }
ReplacedLaunches::~ReplacedLaunches() { --replacements; }
std::int64_t ReplacedLaunches::count() const { return replaced - before_; }
bool ReplacedLaunches::active() { return replacements > 0; }

}  // namespace null_gpu

using namespace null_gpu;  // NOLINT: this file is bodies of C functions

extern "C" {

// NOLINTBEGIN(bugprone-reserved-identifier): names that nvcc's code calls.
void** __cudaRegisterFatBinary(void*) {
  static void* handle[1];
  return handle;
}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, void*,
                            void*, void*, void*, int*) {
  const std::lock_guard lock(names().mutex);
  names().by_function[function] = name;
}
char __cudaInitModule(void**) { return 1; }

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes,
                                     cudaStream_t stream) {
  configurations.push_back({nullptr, grid, block, shared_bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes,
                                       void* stream) {
  if (configurations.empty()) return remembered(cudaErrorMissingConfiguration);
  const Launch call = configurations.back();
  configurations.pop_back();
  *grid = call.grid;
  *block = call.block;
  *shared_bytes = call.shared_bytes;
  *static_cast<const void**>(stream) = call.stream;
  return cudaSuccess;
}
// A kernel's handle is its function.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void**,
                               std::size_t shared_bytes, cudaStream_t stream) {
  return launched({kernel, grid, block, shared_bytes, stream});
}
// NOLINTEND(bugprone-reserved-identifier)
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void**,
                             std::size_t shared_bytes, cudaStream_t stream) {
  return launched({function, grid, block, shared_bytes, stream});
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void**) {
  return launched(
      {function, config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream});
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void**,
                                        std::size_t shared_bytes, cudaStream_t stream) {
  return launched({function, grid, block, shared_bytes, stream});
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   std::size_t, unsigned) {
  *blocks = 8;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int,
                                                          std::size_t) {
  *blocks = 8;
  return cudaSuccess;
}

}  // extern "C"
