// The communicator of ranks that share a host, given how they find each other. Internal to comm;
// communicator.hpp has the factories.
#pragma once

#include <memory>

#include "parallel/comm/communicator.hpp"
#include "parallel/comm/host_peers.hpp"

namespace sluice {

// Collective. REQUIRES: at least two ranks, one host_identity().
[[nodiscard]] std::unique_ptr<Communicator> make_host_communicator(const CommOptions& options,
                                                                   HostRendezvous rendezvous,
                                                                   HostCopy copy);

// SLUICE_HOST_COPY: auto (also unset) or bounce. Throws ConfigError.
[[nodiscard]] HostCopy host_copy_from_environment();

}  // namespace sluice
