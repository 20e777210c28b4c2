#include "runtime/launch/watchdog.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/posix/signals_blocked.hpp"

namespace sluice {
namespace {

WatchdogOptions completed(WatchdogOptions options) {
  if (options.waiting_timeout.count() == 0) options.waiting_timeout = 2 * options.timeout;
  if (!options.on_hang) {
    options.on_hang = [](const ErrorReport& report) {
      // _exit: destructors and atexit handlers would wait for the thread that hangs.
      ::_exit(report_failure(report));
    };
  }
  return options;
}

std::string seconds_text(std::chrono::milliseconds time) {
  char text[32];
  const double seconds = static_cast<double>(time.count()) / 1000;
  std::snprintf(text, sizeof text, seconds < 9.95 ? "%.1f s" : "%.0f s", seconds);
  return text;
}

}  // namespace

Watchdog::Watchdog(WatchdogOptions options)
    : options_(completed(std::move(options))), last_progress_(Clock::now()) {
  if (options_.timeout.count() <= 0) return;
  const SignalsBlocked blocked;  // signals are for the thread that trains
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::pulse() {
  const std::lock_guard lock(mutex_);
  last_progress_ = Clock::now();
}

void Watchdog::set_phase(std::string phase, Waiting waiting) {
  exchange_phase({std::move(phase), waiting});
}

Watchdog::Phase Watchdog::exchange_phase(Phase phase) {
  const std::lock_guard lock(mutex_);
  last_progress_ = Clock::now();
  // The thread need not be woken: it looks again at the earliest time any phase could be overdue.
  return std::exchange(phase_, std::move(phase));
}

std::chrono::milliseconds Watchdog::limit() const {
  return phase_.waiting == Waiting::kYes ? options_.waiting_timeout : options_.timeout;
}

ErrorReport Watchdog::hang_report() const {
  const auto still =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - last_progress_);
  const bool waiting = phase_.waiting == Waiting::kYes;
  return make_error_report("made no progress for " + seconds_text(still) +
                               (waiting ? " while waiting for its peers in " : " in ") +
                               phase_.name,
                           5, waiting);
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    const auto shorter = std::min(options_.timeout, options_.waiting_timeout);
    const Clock::time_point overdue = last_progress_ + limit();
    // At most the shorter limit ahead: the phase may have changed to one with less patience.
    const Clock::time_point wake = std::min(overdue, Clock::now() + shorter);
    changed_.wait_until(lock, wake, [this] { return closing_; });
    if (closing_) return;
    const Clock::time_point now = Clock::now();
    if (now > wake + shorter / 2) {  // this thread did not run either: the process was stopped
      last_progress_ = now;
    } else if (now >= last_progress_ + limit()) {
      const ErrorReport report = hang_report();
      closing_ = true;  // once
      lock.unlock();
      options_.on_hang(report);
      return;
    }
  }
}

PhaseScope::PhaseScope(Watchdog& watchdog, std::string phase, Waiting waiting)
    : watchdog_(watchdog), before_(watchdog.exchange_phase({std::move(phase), waiting})) {}

PhaseScope::~PhaseScope() { watchdog_.exchange_phase(std::move(before_)); }

}  // namespace sluice
