#include "base/host_faults.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "base/error.hpp"
#include "base/posix/descriptor.hpp"

namespace sluice {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// "0::/system.slice/x" (cgroup 2) or "7:pids:/x" (cgroup 1); the first that has a limit.
std::string pids_limit() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const bool second = line.starts_with("0::");
    const std::size_t path = line.find('/');
    if (path == std::string::npos || (!second && line.find(":pids:") == std::string::npos))
      continue;
    const std::string root = second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/pids";
    // A container sees its own group as the root.
    for (const std::string& folder : {root + line.substr(path), root}) {
      const std::string most = first_line(folder + "/pids.max");
      if (most.empty() || most == "max") continue;
      return ", pids.max of the control group is " + most + " (" +
             first_line(folder + "/pids.current") + " in use)";
    }
  }
  return "";
}

}  // namespace

std::string process_limit_remedy() {
  rlimit processes{};
  std::string limit = "unknown";
  if (::getrlimit(RLIMIT_NPROC, &processes) == 0) {
    limit = processes.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(processes.rlim_cur);
  }
  return "the limit on processes and threads is reached: ulimit -u is " + limit + pids_limit() +
         "; raise it (a container: its pids limit), or start fewer ranks (launch.nproc) or threads "
         "(launch.threads)";
}

std::string with_remedy(std::string text) {
  if (text.find("Resource temporarily unavailable") == std::string::npos) return text;
  if (text.find("ulimit") != std::string::npos) return text;
  return text + "; " + process_limit_remedy();
}

void check_loopback_is_up() {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return;  // no IPv4: the rendezvous says what it misses
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(9);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // Connecting a datagram socket sends nothing; it only asks for the route.
  const bool down =
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      (errno == ENETUNREACH || errno == EADDRNOTAVAIL);
  if (!down) return;
  throw Error(
      "the ranks of this host cannot meet at 127.0.0.1: the loopback interface is down; run ip "
      "link "
      "set lo up (in a container or network namespace: inside it)");
}

}  // namespace sluice
