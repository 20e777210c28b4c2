#include "parallel/comm/host/host_record.hpp"

#include "parallel/comm/transfer.hpp"

namespace sluice {
namespace {

bool is_transfer(const HostRecord& record) {
  return record.op == HostOp::kSend || record.op == HostOp::kReceive;
}

TransferCall transfer_of(const HostRecord& record) {
  return {.receives = record.op == HostOp::kReceive ? 1 : 0, .bytes = record.elems};
}

}  // namespace

const char* name_of(HostOp op) {
  switch (op) {
    case HostOp::kBytes:
      return "all_gather_bytes";
    case HostOp::kBarrier:
      return "barrier";
    case HostOp::kReduceScatter:
      return "reduce_scatter";
    case HostOp::kAllGather:
      return "all_gather";
    case HostOp::kSend:
      return "send";
    case HostOp::kReceive:
      return "receive";
  }
  return "?";
}

std::string describe(const HostRecord& record) {
  if (is_transfer(record)) return describe(transfer_of(record));
  std::string text = name_of(record.op);
  if (record.op == HostOp::kBarrier) return text;
  text += " of " + std::to_string(record.elems);
  if (record.op == HostOp::kBytes) return text + " bytes";
  return text + " " + name_of(record.dtype) + " elements in " + std::to_string(record.pieces) +
         " pieces";
}

bool fits(const HostRecord& a, const HostRecord& b) {
  if (is_transfer(a) && is_transfer(b)) return match(transfer_of(a), transfer_of(b));
  return a.op == b.op && a.dtype == b.dtype && a.pieces == b.pieces && a.elems == b.elems &&
         a.cut == b.cut;
}

}  // namespace sluice
