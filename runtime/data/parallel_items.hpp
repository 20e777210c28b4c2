// Runs a function for each of some items on several threads, in no fixed order.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice {

// The threads of a preparation that names none: those of the machine, at most 16.
[[nodiscard]] inline int threads_or_default(int threads) {
  return threads > 0 ? threads
                     : std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 16);
}

// Calls run(i) for i in [0, count) and returns when all have completed. The calling thread takes
// part. After an exception no further item begins, and the first exception is thrown.
template <class Run>
void for_each_item(int threads, std::size_t count, const Run& run) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr first_error;
  const auto work = [&] {
    try {
      for (std::size_t i; (i = next++) < count;) run(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first_error) first_error = std::current_exception();
      next = count;
    }
  };
  {
    std::vector<std::jthread> others;
    const std::size_t wanted = std::min(static_cast<std::size_t>(std::max(threads, 1)), count);
    for (std::size_t t = 1; t < wanted; ++t) others.emplace_back(work);
    work();
  }
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace sluice
