// The communicator of ranks of one host, over a given rendezvous. Internal to comm;
// communicator.hpp has the public factories.
#pragma once

#include <memory>

#include "parallel/comm/communicator.hpp"
#include "parallel/comm/host/host_peers.hpp"

namespace sluice {

// Collective. REQUIRES: at least two ranks with equal host_identity().
[[nodiscard]] std::unique_ptr<Communicator> make_host_communicator(const CommOptions& options,
                                                                   HostRendezvous rendezvous,
                                                                   HostCopy copy);

// The value of SLUICE_HOST_COPY: auto (default) or bounce. Throws ConfigError for other values.
[[nodiscard]] HostCopy host_copy_from_environment();

}  // namespace sluice
