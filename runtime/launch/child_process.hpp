// One rank as a process. The process has a process group of its own, writes standard output and
// error to pipes of the launcher, and has an empty standard input unless a pipe is requested. The
// system kills it when the thread that started it ends.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/posix/descriptor.hpp"

namespace sluice {

struct ChildCommand {
  std::string executable;
  std::vector<std::string> argv;         // argv[0] included
  std::vector<std::string> environment;  // NAME=value, all of it
  bool separate_stderr = false;          // a pipe of its own; else both share one, in exact order
  bool keep_stdin = false;               // its standard input is a pipe from here
};

struct ChildProcess {
  pid_t pid = -1;    // also its process group
  Descriptor pidfd;  // readable when it has ended
  Descriptor out;    // non-blocking
  Descriptor err;    // none unless separate_stderr
  Descriptor in;     // non-blocking; none unless keep_stdin
};

// Returns after the program has started with signal mask `mask`. Throws Error with the cause:
// program missing, or the limit on processes or open files reached. After an error no process is
// left.
[[nodiscard]] ChildProcess start_child(const ChildCommand& command, const sigset_t& mask);

// Opens closed descriptors among 0, 1 and 2 on /dev/null, so that no pipe gets such a number.
void ensure_standard_streams();

}  // namespace sluice
