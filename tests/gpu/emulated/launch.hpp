// Launches of kernels that the C++ compiler has compiled. launches.py writes
//
//     kernel<T><<<grid, block, 0, stream>>>(arguments)
// as  ::emulated_gpu::kernel("kernel", kernel<T>)(grid, block, 0, stream)(arguments)
#pragma once

#include <driver_types.h>
#include <vector_types.h>

#include <cstddef>
#include <functional>
#include <tuple>

namespace emulated_gpu {

struct Launch {
  const char* kernel = "";
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};

// Launches `thread` on the null GPU: each thread of the grid calls it once.
void launch(const Launch& launch, std::function<void()> thread);

// A launch that lacks its arguments. They are copied, as a card copies them.
template <class... P>
struct Configured {
  Launch at;
  void (*kernel)(P...);
  void operator()(P... arguments) const {
    launch(at, [run = kernel, copy = std::tuple<P...>(arguments...)] { std::apply(run, copy); });
  }
};

template <class... P>
struct Kernel {
  const char* name;
  void (*function)(P...);
  Configured<P...> operator()(dim3 grid, dim3 block, std::size_t shared_bytes,
                              cudaStream_t stream) const {
    return {{name, grid, block, shared_bytes, stream}, function};
  }
};

template <class... P>
Kernel<P...> kernel(const char* name, void (*function)(P...)) {
  return {name, function};
}

}  // namespace emulated_gpu
