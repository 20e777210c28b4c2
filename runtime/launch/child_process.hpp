// One rank as a process: in a process group of its own, its standard output and error on pipes to
// here, its standard input empty unless asked for, and killed by the system when the thread that
// started it ends.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "runtime/observe/file_io.hpp"

namespace sluice {

struct ChildCommand {
  std::string executable;
  std::vector<std::string> argv;         // argv[0] included
  std::vector<std::string> environment;  // NAME=value, all of it
  bool separate_stderr = false;          // a pipe of its own; else both share one, in exact order
  bool keep_stdin = false;               // its standard input is a pipe from here
};

struct ChildProcess {
  pid_t pid = -1;  // also its process group
  UniqueFd pidfd;  // readable when it has ended
  UniqueFd out;    // non-blocking
  UniqueFd err;    // none unless separate_stderr
  UniqueFd in;     // non-blocking; none unless keep_stdin
};

// Returns once the program runs; `mask` is the signal mask it gets. Throws Error with the cause: no
// program there, the limit on processes or open files reached. Then no process is left.
[[nodiscard]] ChildProcess start_child(const ChildCommand& command, const sigset_t& mask);

// Opens descriptors 0, 1 and 2 on /dev/null where they are closed, so that no pipe lands there.
void ensure_standard_streams();

}  // namespace sluice
