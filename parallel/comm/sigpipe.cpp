#include "parallel/comm/sigpipe.hpp"

#include <pthread.h>

#include <ctime>

namespace sluice {
namespace {

sigset_t only_sigpipe() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

bool pending() {
  sigset_t set;
  sigpending(&set);
  return sigismember(&set, SIGPIPE) == 1;
}

}  // namespace

SigpipeBlock::SigpipeBlock() {
  const sigset_t set = only_sigpipe();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  was_pending_ = pending();
}

SigpipeBlock::~SigpipeBlock() {
  // Discards only a signal that was raised meanwhile. A signal that was pending before belongs to
  // the caller.
  if (!was_pending_ && pending()) {
    const sigset_t set = only_sigpipe();
    const timespec now{};
    sigtimedwait(&set, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace sluice
