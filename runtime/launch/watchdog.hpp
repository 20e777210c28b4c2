// Ends a rank that hangs and reports its phase. A thread watches for progress: a pulse() per step,
// and each change of phase. After a timeout without progress it reports
//
//   made no progress for 30 s in forward
//
// and ends the process with exit code 5. A rank that waits for its peers in a collective makes no
// progress either when a peer hangs, but is not the cause. So a phase marked `waiting` gets twice
// the time, which lets the hanging rank report first, and its report is secondary.
//
//   Watchdog dog({.timeout = 30s});
//   for (...) { { PhaseScope p(dog, "all-reduce", Waiting::kYes); reduce(); }  dog.pulse(); }
//
// The timeout must be shorter than that of the collectives, else these name the wrong rank first.
// Thread-safe; phases nest on one thread only. A process that was stopped itself (SIGSTOP, a
// machine that slept) gets a fresh period.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/launch/error_report.hpp"

namespace sluice {

enum class Waiting { kNo, kYes };

struct WatchdogOptions {
  std::chrono::milliseconds timeout{0};          // 0: never fires
  std::chrono::milliseconds waiting_timeout{0};  // in a collective; 0: twice the timeout
  // Called on the watchdog's thread at the timeout. Empty: report_failure, then _exit(5).
  std::function<void(const ErrorReport&)> on_hang = {};
};

class Watchdog {
 public:
  explicit Watchdog(WatchdogOptions options);
  ~Watchdog();  // joins; never fires afterwards
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void pulse();
  void set_phase(std::string phase, Waiting waiting = Waiting::kNo);

 private:
  friend class PhaseScope;
  using Clock = std::chrono::steady_clock;
  struct Phase {
    std::string name = "start-up";
    Waiting waiting = Waiting::kNo;
  };

  Phase exchange_phase(Phase phase);
  void watch();
  [[nodiscard]] std::chrono::milliseconds limit() const;  // REQUIRES: mutex_ held
  [[nodiscard]] ErrorReport hang_report() const;          // REQUIRES: mutex_ held

  const WatchdogOptions options_;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  Phase phase_;
  Clock::time_point last_progress_;
  bool closing_ = false;

  std::thread thread_;  // last: it uses the rest
};

// Sets a phase until the end of the scope, then restores the former one.
class PhaseScope {
 public:
  PhaseScope(Watchdog& watchdog, std::string phase, Waiting waiting = Waiting::kNo);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Watchdog& watchdog_;
  Watchdog::Phase before_;
};

}  // namespace sluice
