// Moves the bytes of a send to its receive on one host, after both ranks have called.
// HostRecord::table names the sender's one piece. Both functions throw HostError. Internal to comm.
#pragma once

#include <cstdint>

#include "parallel/comm/host/host_peers.hpp"

namespace sluice {

// `own`: this rank in its group. Returns when the receiver no longer needs `data`.
void send_bytes(HostPeers& peers, int own, const char* data, std::int64_t bytes);
void receive_bytes(HostPeers& peers, int sender, char* data, std::int64_t bytes);

}  // namespace sluice
