#include "runtime/launch/descendants.hpp"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/launch/pidfd.hpp"

namespace sluice {
namespace {

// The fourth field of /proc/<pid>/stat; 0 if the process is gone. The second field, the name in
// parentheses, may hold any text, so fields are counted from the last parenthesis.
pid_t parent_of(std::string_view pid) {
  std::ifstream in("/proc/" + std::string(pid) + "/stat");
  std::string line;
  std::getline(in, line);
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos || name_end + 4 >= line.size()) return 0;
  pid_t parent = 0;
  std::from_chars(line.data() + name_end + 4, line.data() + line.size(), parent);
  return parent;
}

using Clock = std::chrono::steady_clock;

// Kills, waits for the end and reaps.
void end_child(pid_t pid, Clock::time_point deadline) {
  const Descriptor pidfd = open_pidfd(pid);
  ::kill(pid, SIGKILL);
  if (pidfd) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd ended{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
    ::poll(&ended, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
  }
  ::waitpid(pid, nullptr, WNOHANG);
}

}  // namespace

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> result;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), &::closedir);
  if (!proc) return result;
  while (const dirent* entry = ::readdir(proc.get())) {
    const std::string_view name(entry->d_name);
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    if (parent_of(name) == parent) result.push_back(pid);
  }
  return result;
}

OrphanKeeper::OrphanKeeper() : callers_own_(children_of(::getpid())) {
  ::prctl(PR_GET_CHILD_SUBREAPER, &former_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

OrphanKeeper::~OrphanKeeper() { ::prctl(PR_SET_CHILD_SUBREAPER, former_); }

bool OrphanKeeper::end(std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  while (true) {  // the end of one makes its own children ours
    bool any = false;
    for (const pid_t pid : children_of(::getpid())) {
      const bool own =
          std::find(callers_own_.begin(), callers_own_.end(), pid) != callers_own_.end();
      if (own) continue;
      if (Clock::now() >= deadline) return false;
      any = true;
      end_child(pid, deadline);
    }
    if (!any) return true;
  }
}

}  // namespace sluice
