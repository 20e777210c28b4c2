#include "parallel/comm/host/host_transfer.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace sluice {
namespace {

// The sender's buffer has two halves. The sender writes one half while the receiver may still read
// the other. A half is rewritten only after the phase that follows its read.
constexpr std::int64_t kHalfBytes = kHostBounceBytes / 2;

template <typename Copy>
void for_each_half(std::int64_t bytes, const Copy& copy) {
  std::int64_t half = 0;
  for (std::int64_t at = 0; at < bytes; at += kHalfBytes, half = kHalfBytes - half) {
    copy(at, half, static_cast<std::size_t>(std::min(kHalfBytes, bytes - at)));
  }
}

}  // namespace

void send_bytes(HostPeers& peers, int own, const char* data, std::int64_t bytes) {
  if (bytes == 0) return;
  if (peers.direct()) return peers.advance();
  for_each_half(bytes, [&](std::int64_t at, std::int64_t half, std::size_t count) {
    std::memcpy(peers.segment().bounce(own) + half, data + at, count);
    peers.advance();
  });
}

void receive_bytes(HostPeers& peers, int sender, char* data, std::int64_t bytes) {
  if (bytes == 0) return;
  if (!peers.direct()) {
    for_each_half(bytes, [&](std::int64_t at, std::int64_t half, std::size_t count) {
      peers.advance();
      std::memcpy(data + at, peers.segment().bounce(sender) + half, count);
    });
    return;
  }
  std::vector<HostPiece> table = peers.table_of(sender, 1);
  if (peers.map(sender, table)) {
    peers.copy_mapped(data, table.front().input, bytes);
  } else {
    peers.read(sender, data, table.front().input, bytes);
  }
  peers.advance();
}

}  // namespace sluice
