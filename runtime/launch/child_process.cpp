#include "runtime/launch/child_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/host_faults.hpp"
#include "runtime/launch/pidfd.hpp"

namespace sluice {
namespace {

struct Pipe {
  Descriptor read;
  Descriptor write;
};

[[noreturn]] void throw_start_error(const std::string& what, int error_number) {
  std::string remedy;
  if (what == "fork" && error_number == EAGAIN) {
    remedy = "; " + process_limit_remedy();
  } else if (what == "fork" && error_number == ENOMEM) {
    remedy = "; free memory, or start fewer ranks (launch.nproc)";
  } else if (error_number == EMFILE || error_number == ENFILE) {
    remedy = "; raise the limit on open files (ulimit -n), or start fewer ranks (launch.nproc)";
  }
  throw Error(what + ": " + std::strerror(error_number) + remedy);
}

Pipe make_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_start_error("pipe", errno);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  // execve takes char* for history's sake and does not write.
  for (const std::string& s : strings) result.push_back(const_cast<char*>(s.c_str()));
  result.push_back(nullptr);
  return result;
}

// All that the child needs, made before the fork: after it only async-signal-safe calls are
// allowed.
struct Prepared {
  const char* executable;
  char* const* argv;
  char* const* environment;
  sigset_t mask;
  pid_t parent;
  int in, out, err, status;
};

[[noreturn]] void fail_in_child(int status_fd) {
  const int error_number = errno;
  const ssize_t told = ::write(status_fd, &error_number, sizeof error_number);
  ::_exit(told > 0 ? 127 : 126);
}

[[noreturn]] void become_child(const Prepared& p) {
  ::setpgid(0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail_in_child(p.status);
  // The parent may have died before the line above: then no signal would ever come.
  if (::getppid() != p.parent) ::_exit(126);
  if (::dup2(p.in, 0) < 0 || ::dup2(p.out, 1) < 0 || ::dup2(p.err, 2) < 0) fail_in_child(p.status);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM}) ::sigaction(signal, &standard, nullptr);
  ::sigprocmask(SIG_SETMASK, &p.mask, nullptr);
  ::execve(p.executable, p.argv, p.environment);
  fail_in_child(p.status);
}

// 0 once the program runs (exec closed the pipe), else the errno the child sent.
int start_status(int fd) {
  int error_number = 0;
  ssize_t got = 0;
  do {
    got = ::read(fd, &error_number, sizeof error_number);
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof error_number) ? error_number : 0;
}

void kill_and_reap(pid_t pid) {
  ::kill(pid, SIGKILL);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void set_nonblocking(const Descriptor& fd) {
  if (fd) ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

}  // namespace

ChildProcess start_child(const ChildCommand& command, const sigset_t& mask) {
  const std::vector<char*> argv = pointers(command.argv);
  const std::vector<char*> environment = pointers(command.environment);
  const Descriptor nothing = open_descriptor("/dev/null", O_RDONLY);
  if (!nothing) throw_start_error("/dev/null", errno);
  Pipe out = make_pipe();
  Pipe err = command.separate_stderr ? make_pipe() : Pipe();
  Pipe in = command.keep_stdin ? make_pipe() : Pipe();
  Pipe status = make_pipe();
  const Prepared prepared{.executable = command.executable.c_str(),
                          .argv = argv.data(),
                          .environment = environment.data(),
                          .mask = mask,
                          .parent = ::getpid(),
                          .in = (in.read ? in.read : nothing).get(),
                          .out = out.write.get(),
                          .err = (err.write ? err.write : out.write).get(),
                          .status = status.write.get()};
  const pid_t pid = ::fork();
  if (pid < 0) throw_start_error("fork", errno);
  if (pid == 0) become_child(prepared);

  status.write.reset();
  const int failed = start_status(status.read.get());
  ChildProcess child{.pid = pid,
                     .pidfd = failed == 0 ? open_pidfd(pid) : Descriptor(),
                     .out = std::move(out.read),
                     .err = std::move(err.read),
                     .in = std::move(in.write)};
  if (failed != 0 || !child.pidfd) {
    const int error_number = failed != 0 ? failed : errno;
    kill_and_reap(pid);
    throw_start_error(failed != 0 ? command.executable : "pidfd_open", error_number);
  }
  set_nonblocking(child.out);
  set_nonblocking(child.err);
  set_nonblocking(child.in);
  return child;
}

void ensure_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      // The lowest free number, so it is this one.
      [[maybe_unused]] const int opened = ::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
    }
  }
}

}  // namespace sluice
