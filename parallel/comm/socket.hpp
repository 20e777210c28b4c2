// TCP checks of a rendezvous: is the port free, does a server listen? They run before libtorch
// connects, so that the error names the port or the missing server. Thread-safe. Internal to comm.
#pragma once

#include <chrono>
#include <string>

#include "base/posix/descriptor.hpp"

namespace sluice {

// Binds host:port on the interface with the host's address. Binds on all interfaces if the host has
// several addresses, or an address of no interface (a forwarded port, a cluster's virtual address).
// Throws CommError if the port is in use or the host is unknown.
[[nodiscard]] Descriptor bind_port(const std::string& host, int port);

// True if the host's first address is a loopback address. False if the host is unknown.
[[nodiscard]] bool is_loopback(const std::string& host);

// Returns true when a server listens at host:port, false at the deadline. Throws CommError if the
// host is still unknown at the deadline.
[[nodiscard]] bool wait_for_listener(const std::string& host, int port,
                                     std::chrono::steady_clock::time_point deadline);

// The numeric address of this machine on the route to `host`. Peers of that network reach this
// machine at that address.
[[nodiscard]] std::string local_address_towards(const std::string& host, int port);

}  // namespace sluice
