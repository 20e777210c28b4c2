// What send and receive of all communicators have in common. Internal to comm.
#pragma once

#include <cstdint>
#include <string>

#include "parallel/comm/op_queue.hpp"

namespace sluice {

// One rank's half of a transfer, as it tells the other.
struct TransferCall {
  std::int64_t receives = 0;  // 1: receive, 0: send
  std::int64_t bytes = 0;
};

// "send of 12 bytes"
[[nodiscard]] std::string describe(const TransferCall& call);
// One sends what the other receives.
[[nodiscard]] bool match(const TransferCall& a, const TransferCall& b);

// Throws Error unless the group has two ranks, `peer` is the other one, and bytes >= 0.
void check_transfer(const GroupName& name, const std::string& op, int peer, std::int64_t bytes);

}  // namespace sluice
