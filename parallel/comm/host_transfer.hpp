// The bytes of a send and its receive between two ranks of one host, once both have called
// (HostRecord::table: the sender's one piece). Throw HostError. Internal to comm.
#pragma once

#include <cstdint>

#include "parallel/comm/host_peers.hpp"

namespace sluice {

// `own`: the rank in its group. Returns when the receiver does not need `data` any more.
void send_bytes(HostPeers& peers, int own, const char* data, std::int64_t bytes);
void receive_bytes(HostPeers& peers, int sender, char* data, std::int64_t bytes);

}  // namespace sluice
