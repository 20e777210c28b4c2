#include "parallel/comm/transfer.hpp"

#include "base/error.hpp"

namespace sluice {

std::string describe(const TransferCall& call) {
  return (call.receives != 0 ? "receive of " : "send of ") + std::to_string(call.bytes) + " bytes";
}

bool match(const TransferCall& a, const TransferCall& b) {
  return a.receives + b.receives == 1 && a.bytes == b.bytes;
}

void check_transfer(const GroupName& name, const std::string& op, int peer, std::int64_t bytes) {
  const std::string what = op + " of " + std::to_string(bytes) + " bytes with rank " +
                           std::to_string(peer) + " on rank " + std::to_string(name.rank) + " of " +
                           std::to_string(name.size) + " of group " + name.group;
  if (name.size != 2 || peer != 1 - name.rank) {
    throw Error(what + ": point-to-point transfers are between the ranks of a group of two; " +
                "make a group of these two");
  }
  if (bytes < 0) throw Error(what + ": a size is not negative");
}

}  // namespace sluice
