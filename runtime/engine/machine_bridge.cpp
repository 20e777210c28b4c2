#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "runtime/engine/machine.hpp"
#include "runtime/model/tensor_view.hpp"

extern "C" int mkl_serv_intel_cpu_true();  // mkl_dispatch.cpp

namespace sluice {

void set_libtorch_threads(int threads) {
  (void)mkl_serv_intel_cpu_true();  // links it in, ahead of libtorch's own
  at::set_num_threads(threads);
  static std::once_flag once;  // libtorch takes this number once
  std::call_once(once, [] { at::set_num_interop_threads(1); });
}

double measure_gemm_rate(DType dtype, at::Device device) {
  const std::int64_t n = device.is_cuda() ? 8192 : 1024;
  const auto options = at::TensorOptions().dtype(scalar_type(dtype)).device(device);
  const at::Tensor a = at::empty({n, n}, options).normal_();
  const at::Tensor b = at::empty({n, n}, options).normal_();
  at::Tensor c = at::empty({n, n}, options);
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    at::mm_out(c, a, b);
    if (device.is_cuda()) (void)c[0][0].item<float>();  // the host waits for the product
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const auto side = static_cast<double>(n);
    best = std::max(best, 2 * side * side * side / took.count());
  }
  return best;
}

std::int64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * std::int64_t{1024};
}

}  // namespace sluice
