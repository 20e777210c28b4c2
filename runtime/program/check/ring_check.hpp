// Checks which chunk occupies which slot of the ring; program_check.hpp states the rules. Pure.
//
// A slot has two independent parts: states (with the weights that an update makes) and gradients. A
// part may go to another chunk when all operations on the previous chunk are known to have
// completed. An operation on a chunk must find the chunk in its slot.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "runtime/program/check/op_order.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

class RingCheck {
 public:
  RingCheck(const Program& program, const OpOrder& order);

  // Called for every operation on a chunk, in the order of the program. Returns its fault, or "".
  // `sums`: the operation reads or sums gradients for the norm.
  [[nodiscard]] std::string enter(OpId op, bool sums);
  // Called after the last operation of a training program. The next step starts with the ring that
  // this program leaves.
  [[nodiscard]] std::string fault_at_end() const;

  // Gradients are on NVMe, or on the device. In both cases they pass through the ring.
  [[nodiscard]] bool grads_from_disk() const {
    return has(OpKind::kReadGrads) || has(OpKind::kWriteBucket);
  }
  [[nodiscard]] bool grads_from_device() const {
    return has(OpKind::kCopyGrads) || (has(OpKind::kReduceGrads) && !has(OpKind::kStoreGrads));
  }

 private:
  struct Part {
    int tenant = -1;  // 2 * chunk, or 2 * chunk + 1 on the chunk's second visit
    std::vector<OpId> users;
    std::vector<OpId> former;  // users of the previous tenant
  };

  [[nodiscard]] bool has(OpKind kind) const { return nth(has_, kind); }
  [[nodiscard]] std::string enter(Part& part, OpId op, bool takes, bool again);

  const Program& program_;
  const OpOrder& order_;
  std::array<bool, static_cast<std::size_t>(kOpKindCount)> has_{};
  std::vector<Part> states_;  // by slot
  std::vector<Part> grads_;
};

}  // namespace sluice
