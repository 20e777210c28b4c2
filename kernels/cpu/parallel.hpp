// Host threads of the kernels: one pool (oneTBB), apart from libtorch's, of a set size. No kernel's
// result depends on that size. The calling thread takes part; floating-point control
// (flush-to-zero) is the caller's on every thread of a loop. An exception of a piece reaches the
// caller, once all pieces that had started are over. Calls from several threads, and calls within a
// piece, are allowed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

namespace sluice {

// Threads of the loops that start from now on, the caller included; default: the CPUs this process
// may run on. Throws Error if count < 1. Not to be called while another thread starts a loop.
void set_compute_threads(int count);
[[nodiscard]] int compute_threads();

// Called by each thread of the pool's own as it comes to work, with its index in
// [0, compute_threads()): to bind itself. Callers of loops are not. It must not throw. Empty:
// nothing is called. Not to be called while another thread starts a loop.
void on_compute_thread(std::function<void(int index)> function);

// Least number of elements worth a piece of its own: 64 KiB.
[[nodiscard]] constexpr std::int64_t grain_elements(std::int64_t bytes_per_element) {
  const std::int64_t n = 64 * 1024 / (bytes_per_element > 0 ? bytes_per_element : 1);
  return n < 64 ? 64 : (n + 63) / 64 * 64;
}

using RangeFunction = void (*)(void* context, std::int64_t begin, std::int64_t end);
void parallel_for_erased(std::int64_t n, std::int64_t grain, void* context, RangeFunction function);

// body(begin, end) over pieces of [0, n) that begin at multiples of `grain`. REQUIRES: grain >= 1.
template <class Body>
void parallel_for(std::int64_t n, std::int64_t grain, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  parallel_for_erased(n, grain, const_cast<void*>(static_cast<const void*>(std::addressof(body))),
                      [](void* context, std::int64_t begin, std::int64_t end) {
                        (*static_cast<Plain*>(context))(begin, end);
                      });
}

}  // namespace sluice
