#include "parallel/comm/sigpipe.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>

namespace sluice {
namespace {

bool blocked() {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, SIGPIPE) == 1;
}

// Without the block, or if the signal were delivered at its end, the test program would die here.
TEST(SigpipeBlock, AWriteToNobodyIsAnErrorAndNoSignal) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  {
    const SigpipeBlock no_sigpipe;
    EXPECT_TRUE(blocked());
    EXPECT_EQ(write(ends[1], "x", 1), -1);
    EXPECT_EQ(errno, EPIPE);
    const SigpipeBlock inner;
    EXPECT_EQ(write(ends[1], "x", 1), -1);
  }
  EXPECT_FALSE(blocked());
  close(ends[1]);
}

}  // namespace
}  // namespace sluice
