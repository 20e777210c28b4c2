#include "runtime/launch/stop_signal.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

namespace sluice {
namespace {

TEST(StopSignal, FirstRaisesTheFlag) {
  for (const int signal : {SIGTERM, SIGINT}) {
    install_stop_handlers();
    EXPECT_FALSE(stop_requested());
    ::raise(signal);
    EXPECT_TRUE(stop_requested());
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

}  // namespace
}  // namespace sluice
