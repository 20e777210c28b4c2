// A process that works until it is killed.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sluice {

// A fork that runs work(tell), and has called tell(), true on success, when this returns. What it
// throws ends it. `work` goes on until kill_process.
template <class Work>
[[nodiscard]] pid_t start_process(const Work& work) {
  int ready[2];
  EXPECT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      work([&] { return ::write(ready[1], "x", 1) == 1; });
    } catch (...) {
    }
    ::_exit(1);
  }
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::close(ready[1]);
  return child;
}

inline void kill_process(pid_t child) {
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
}

}  // namespace sluice
