// Kernels that are computed: launches of a null GPU whose streams hold tasks (queue.hpp).
// Thread-safe.
#pragma once

#include <driver_types.h>
#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/gpu/null/queue.hpp"

namespace null_gpu {

// What cudaLaunchKernel takes, with the kernel's name (mangled or not) and its work.
struct ComputedLaunch {
  std::string kernel;
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  const void* stream = nullptr;
  Task task;
};

// Counts, checks and records the launch as any other, and enqueues its task. The error is also kept
// for cudaGetLastError().
cudaError_t launch_computed(const ComputedLaunch& launch);

// While it lives, this thread's launches of libtorch's kernels need no work of their own: the owner
// enqueues one task in their place.
class ReplacedLaunches {
 public:
  ReplacedLaunches();
  ~ReplacedLaunches();
  ReplacedLaunches(const ReplacedLaunches&) = delete;
  ReplacedLaunches& operator=(const ReplacedLaunches&) = delete;
  // Launches of the thread since the object was made.
  [[nodiscard]] std::int64_t count() const;
  // Whether the thread has such an object.
  [[nodiscard]] static bool active();

 private:
  std::int64_t before_;
};

}  // namespace null_gpu
