// Shared by send and receive of all communicators. Internal to comm.
#pragma once

#include <cstdint>
#include <string>

#include "parallel/comm/op_queue.hpp"

namespace sluice {

// One rank's half of a transfer, as the two ranks exchange it.
struct TransferCall {
  std::int64_t receives = 0;  // 1: receive, 0: send
  std::int64_t bytes = 0;
};

// "send of 12 bytes"
[[nodiscard]] std::string describe(const TransferCall& call);
// True if one call is a send and the other its receive, of equal size.
[[nodiscard]] bool match(const TransferCall& a, const TransferCall& b);

// Throws Error unless the group has two ranks, `peer` is the other one, and bytes >= 0.
void check_transfer(const GroupName& name, const std::string& op, int peer, std::int64_t bytes);

}  // namespace sluice
