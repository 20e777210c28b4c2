// The compute threads: one pool (oneTBB) of a given size, separate from libtorch's. No kernel's
// result depends on the size.
//
// The calling thread takes part in its loop. All threads of a loop use the caller's floating-point
// control (flush-to-zero). An exception of a piece reaches the caller after all started pieces have
// completed. Several threads may run loops at once, and a piece may start a loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

namespace sluice {

// Number of threads, including the caller, of every later loop. Default: the CPUs that this process
// may use. Throws Error if count < 1. REQUIRES: no other thread starts a loop meanwhile.
void set_compute_threads(int count);
[[nodiscard]] int compute_threads();

// Sets a function that each pool thread calls when it starts to work, for example to bind itself.
// The argument is the thread's index in [0, compute_threads()). Threads that call loops do not call
// the function. The function must not throw; an empty function removes it. REQUIRES: no other
// thread starts a loop meanwhile.
void on_compute_thread(std::function<void(int index)> function);

// Smallest number of elements that is worth a piece: 64 KiB.
[[nodiscard]] constexpr std::int64_t grain_elements(std::int64_t bytes_per_element) {
  const std::int64_t n = 64 * 1024 / (bytes_per_element > 0 ? bytes_per_element : 1);
  return n < 64 ? 64 : (n + 63) / 64 * 64;
}

using RangeFunction = void (*)(void* context, std::int64_t begin, std::int64_t end);
void parallel_for_erased(std::int64_t n, std::int64_t grain, void* context, RangeFunction function);

// Calls body(begin, end) for pieces of [0, n) that begin at multiples of `grain`. REQUIRES:
// grain >= 1.
template <class Body>
void parallel_for(std::int64_t n, std::int64_t grain, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  parallel_for_erased(n, grain, const_cast<void*>(static_cast<const void*>(std::addressof(body))),
                      [](void* context, std::int64_t begin, std::int64_t end) {
                        (*static_cast<Plain*>(context))(begin, end);
                      });
}

}  // namespace sluice
