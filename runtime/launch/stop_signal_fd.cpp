#include "runtime/launch/stop_signal_fd.hpp"

#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace sluice {
namespace {

constexpr std::array kStopSignals{SIGINT, SIGTERM, SIGHUP};

// A signal of the process goes to any thread that does not block it, and its default is the end.
std::atomic<pthread_t> reader;
static_assert(std::atomic<pthread_t>::is_always_lock_free);

void hand_on(int signal) {
  const int error = errno;
  ::pthread_kill(reader.load(), signal);  // blocked there: it waits to be read
  errno = error;
}

// nohup has it ignored, and blocked signals are queued even so.
bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

sigset_t stop_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : kStopSignals) {
    // A shell without job control ignores SIGINT for background processes. A SIGINT that still
    // arrives is deliberate, so only SIGHUP keeps its disposition.
    if (signal != SIGHUP || !is_ignored(signal)) ::sigaddset(&set, signal);
  }
  return set;
}

}  // namespace

StopSignalFd::StopSignalFd() {
  const sigset_t set = stop_signals();
  fd_.reset(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd_) throw Error("cannot start ranks: signalfd: " + std::string(std::strerror(errno)));
  ::pthread_sigmask(SIG_BLOCK, &set, &former_mask_);
  reader = ::pthread_self();
  struct sigaction action {};
  action.sa_handler = hand_on;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    const bool read_here = ::sigismember(&set, kStopSignals[i]) == 1;
    ::sigaction(kStopSignals[i], read_here ? &action : nullptr, &former_[i]);
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &former_pipe_);
}

StopSignalFd::~StopSignalFd() {
  // Ctrl-C typed once more while the last lines were printed must not change the exit code.
  while (next()) {
  }
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    ::sigaction(kStopSignals[i], &former_[i], nullptr);
  }
  ::sigaction(SIGPIPE, &former_pipe_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &former_mask_, nullptr);
}

std::optional<int> StopSignalFd::next() {
  signalfd_siginfo info{};
  ssize_t got = 0;
  do {
    got = ::read(fd_.get(), &info, sizeof info);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace sluice
