// The two TCP questions of a rendezvous, answered before libtorch asks them, so that a port in use
// and a server that never comes are errors of ours. Thread-safe. Internal to comm.
#pragma once

#include <chrono>
#include <string>

namespace sluice {

// A bound socket. Closes it unless released.
class BoundSocket {
 public:
  explicit BoundSocket(int fd) : fd_(fd) {}
  ~BoundSocket();
  BoundSocket(const BoundSocket&) = delete;
  BoundSocket& operator=(const BoundSocket&) = delete;
  [[nodiscard]] int fd() const { return fd_; }
  int release();

 private:
  int fd_;
};

// Binds host:port on the interface that has the host's address. On all interfaces where the host
// has several addresses, or one that no interface has (a forwarded port, a cluster's virtual
// address). Throws CommError in words where the port is in use or the host is unknown.
[[nodiscard]] int bind_port(const std::string& host, int port);

// Whether a host's first address is one of the loopback. False where the host is unknown.
[[nodiscard]] bool is_loopback(const std::string& host);

// Returns when something listens at host:port; false at the deadline. Throws CommError where the
// host is unknown by then.
[[nodiscard]] bool wait_for_listener(const std::string& host, int port,
                                     std::chrono::steady_clock::time_point deadline);

// This machine's address on the way to host (numeric): what peers on that network reach it by.
[[nodiscard]] std::string local_address_towards(const std::string& host, int port);

}  // namespace sluice
