#include "runtime/launch/stop_signal.hpp"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace sluice {
namespace {

// 0: none came; otherwise the monotonic time of the first, in ns. Lock-free, so a handler may use
// it.
std::atomic<std::int64_t> first_request_ns{0};
std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

// Async-signal-safe.
void on_stop_signal(int signal) {
  const int saved_errno = errno;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t now_ns =
      static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec + 1;
  std::int64_t first = 0;
  if (!first_request_ns.compare_exchange_strong(first, now_ns)) {
    constexpr std::int64_t kSameRequestNs = std::chrono::nanoseconds(kSameRequest).count();
    const bool same_request = signal == SIGTERM && now_ns - first < kSameRequestNs;
    if (!same_request) ::_exit(kInterruptedExitCode);
  } else {
    first_signal.store(signal);
  }
  errno = saved_errno;
}

}  // namespace

void install_stop_handlers() {
  first_request_ns.store(0);
  first_signal.store(0);
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  // One at a time, so that the two signals cannot interleave in the handler.
  ::sigaddset(&action.sa_mask, SIGTERM);
  ::sigaddset(&action.sa_mask, SIGINT);
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
}

int stop_signal() {
  // Relaxed: nothing else is published with the number.
  return first_signal.load(std::memory_order_relaxed);
}

}  // namespace sluice
