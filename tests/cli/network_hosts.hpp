// Two "hosts" on this machine: network namespaces with a wire between them, each with its own
// loopback, addresses and processes. Needs root and the program ip.
#pragma once

#include <string>

namespace sluice::testing {

class NetworkHosts {
 public:
  // Names contain this process's number, so that tests can run side by side.
  NetworkHosts();
  // Ends the processes that still run on the hosts.
  ~NetworkHosts();
  NetworkHosts(const NetworkHosts&) = delete;
  NetworkHosts& operator=(const NetworkHosts&) = delete;

  // The reason why no hosts exist; empty if they do.
  [[nodiscard]] const std::string& missing() const { return missing_; }

  [[nodiscard]] std::string address(int host) const;  // host 0 or 1
  // The words of a shell before a command that is to run on the host.
  [[nodiscard]] std::string run_on(int host) const;
  // The text of a script that replaces ssh: HOST COMMAND. As with ssh, the command is no child of
  // the caller and outlives it.
  [[nodiscard]] std::string ssh_script() const;
  // Sends the signal to all processes of the host; false if there are none.
  bool signal_all_on(int host, int signal) const;
  [[nodiscard]] int processes_on(int host) const;

 private:
  [[nodiscard]] std::string name(int host) const;
  std::string missing_;
};

}  // namespace sluice::testing
