// Two "hosts" on this machine: network namespaces with a wire between them, each with its own
// loopback, addresses and processes. Needs root and the program ip.
#pragma once

#include <string>

namespace sluice::testing {

class NetworkHosts {
 public:
  // Names are of this process, so that tests can run side by side.
  NetworkHosts();
  // Ends what still runs in them.
  ~NetworkHosts();
  NetworkHosts(const NetworkHosts&) = delete;
  NetworkHosts& operator=(const NetworkHosts&) = delete;

  // Why there are none; empty where there are.
  [[nodiscard]] const std::string& missing() const { return missing_; }

  [[nodiscard]] std::string address(int host) const;  // host 0 or 1
  // A shell's words before a command, to run it there.
  [[nodiscard]] std::string run_on(int host) const;
  // The text of a script in the place of ssh: HOST COMMAND. As with ssh, what runs there is no
  // child of the caller's and outlives it.
  [[nodiscard]] std::string ssh_script() const;
  // Sends the signal to everything that runs on the host; false where nothing does.
  bool signal_all_on(int host, int signal) const;
  [[nodiscard]] int processes_on(int host) const;

 private:
  [[nodiscard]] std::string name(int host) const;
  std::string missing_;
};

}  // namespace sluice::testing
