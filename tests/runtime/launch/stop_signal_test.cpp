#include "runtime/launch/stop_signal.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>

#include "runtime/launch/stop_signal_fd.hpp"

namespace sluice {
namespace {

TEST(StopSignal, FirstRaisesTheFlag) {
  for (const int signal : {SIGTERM, SIGINT}) {
    install_stop_handlers();
    EXPECT_FALSE(stop_requested());
    ::raise(signal);
    EXPECT_TRUE(stop_requested());
    EXPECT_EQ(stop_signal(), signal);
  }
  ::signal(SIGTERM, SIG_DFL);
  ::signal(SIGINT, SIG_DFL);
}

void raise_twice(int signal, std::chrono::milliseconds between) {
  install_stop_handlers();
  ::raise(signal);
  std::this_thread::sleep_for(between);
  ::raise(signal);
  ::_exit(0);
}

TEST(StopSignalDeathTest, SecondEndsAtOnce) {
  using std::chrono::milliseconds;
  EXPECT_EXIT(raise_twice(SIGINT, milliseconds(0)), ::testing::ExitedWithCode(130), "");
  EXPECT_EXIT(raise_twice(SIGTERM, kSameRequest + milliseconds(20)), ::testing::ExitedWithCode(130),
              "");
  EXPECT_EXIT(raise_twice(SIGTERM, milliseconds(0)), ::testing::ExitedWithCode(0), "");
}

// Readable may be said of a signal that another thread takes first, to hand it on: as the launcher
// does, it is asked again.
bool comes(StopSignalFd& signals, int signal) {
  pollfd wait{signals.fd(), POLLIN, 0};
  while (::poll(&wait, 1, 10000) == 1) {
    if (const std::optional<int> next = signals.next()) return *next == signal;
  }
  return false;
}

// The thread is one of those that libtorch keeps: it was there before, blocks nothing and stays (of
// one that ends, ThreadSanitizer drops the signals that it had put off).
void read_beside_a_thread(int signal) {
  std::thread([] {
    while (true) ::pause();
  }).detach();
  int read = 0;
  {
    StopSignalFd signals;
    for (int times = 0; times < 2; ++times) {
      ::kill(::getpid(), signal);
      if (comes(signals, signal)) ++read;
    }
  }
  ::_exit(read);
}

TEST(StopSignalDeathTest, AreReadWhereOtherThreadsRun) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    EXPECT_EXIT(read_beside_a_thread(signal), ::testing::ExitedWithCode(2), "");
  }
}

void end_after(int signal) {
  { const StopSignalFd signals; }
  ::kill(::getpid(), signal);
  ::_exit(0);
}

TEST(StopSignalDeathTest, DefaultsAreBackAfterwards) {
  EXPECT_EXIT(end_after(SIGTERM), ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace sluice
