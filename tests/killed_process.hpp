// A process that works until a test kills it.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sluice {

// Forks a process that runs work(tell). Returns after the process has called tell(), which returns
// true on success. An exception ends the process. `work` continues until kill_process().
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
