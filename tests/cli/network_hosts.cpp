#include "tests/cli/network_hosts.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <vector>

namespace sluice::testing {
namespace {

bool shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

std::string output_of(const std::string& command) {
  FILE* pipe = ::popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return {};
  std::string text;
  char buffer[4096];
  std::size_t got = 0;
  while ((got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0) text.append(buffer, got);
  ::pclose(pipe);
  return text;
}

std::vector<pid_t> pids_in(const std::string& name) {
  std::istringstream words(output_of("ip netns pids " + name));
  std::vector<pid_t> pids;
  for (pid_t pid = 0; words >> pid;) pids.push_back(pid);
  return pids;
}

}  // namespace

NetworkHosts::NetworkHosts() {
  if (::geteuid() != 0) missing_ = "network namespaces need root";
  if (missing_.empty() && !shell("ip -V")) missing_ = "there is no program ip (iproute2)";
  if (!missing_.empty()) return;
  for (const int host : {0, 1}) {
    const bool made =
        shell("ip netns add " + name(host)) && shell("ip -n " + name(host) + " link set lo up");
    if (!made) missing_ = "network namespaces are not permitted here";
  }
  const std::string wire = "ip link add wire netns " + name(0) + " type veth peer name wire netns ";
  if (missing_.empty() && !shell(wire + name(1))) missing_ = "there are no veth devices here";
  for (const int host : {0, 1}) {
    if (!missing_.empty()) return;
    const bool up =
        shell("ip -n " + name(host) + " address add " + address(host) + "/24 dev wire") &&
        shell("ip -n " + name(host) + " link set wire up");
    if (!up) missing_ = "the namespaces' wire cannot be set up";
  }
}

NetworkHosts::~NetworkHosts() {
  for (const int host : {0, 1}) {
    (void)signal_all_on(host, SIGKILL);
    shell("ip netns del " + name(host));
  }
}

std::string NetworkHosts::name(int host) const {
  return "sluice-" + std::to_string(::getpid()) + "-" + std::to_string(host);
}

std::string NetworkHosts::address(int host) const { return "10.77.5." + std::to_string(host + 1); }

std::string NetworkHosts::run_on(int host) const { return "ip netns exec " + name(host) + " "; }

std::string NetworkHosts::ssh_script() const {
  return "case $1 in\n" + address(0) + ") on='" + run_on(0) + "' ;;\n" + address(1) + ") on='" +
         run_on(1) +
         "' ;;\n*) echo no route to $1 >&2; exit 255 ;;\nesac\n"
         "setsid $on sh -c \"$2\"\ncode=$?\n[ $code -gt 128 ] && exit 255\nexit $code\n";
}

bool NetworkHosts::signal_all_on(int host, int signal) const {
  const std::vector<pid_t> pids = pids_in(name(host));
  for (const pid_t pid : pids) ::kill(pid, signal);
  return !pids.empty();
}

int NetworkHosts::processes_on(int host) const {
  return static_cast<int>(pids_in(name(host)).size());
}

}  // namespace sluice::testing
