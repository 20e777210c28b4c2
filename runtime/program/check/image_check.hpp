// Checks a program whose states on NVMe are an image (Program::image); program_check.hpp states the
// rules. Pure.
#pragma once

#include <string>
#include <vector>

#include "runtime/program/check/op_order.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

class ImageCheck {
 public:
  ImageCheck(const Program& program, const OpOrder& order);

  // Called for every operation, in the order of the program. Returns its fault, or "".
  [[nodiscard]] std::string enter(OpId op);
  // Called after the last operation of a training program.
  [[nodiscard]] std::string fault_at_end() const;

  // Whether an operation reads or writes the second place of a chunk's states. The second place is
  // current after the deferred updates of this program.
  [[nodiscard]] bool in_second_place(const Op& op) const {
    const bool writes = op.kind == OpKind::kWriteStates;
    if (!program_.image) return writes && op.speculative;
    return op.ahead || writes != op.speculative;
  }

 private:
  [[nodiscard]] std::string commit(OpId id);
  [[nodiscard]] std::string overwrite(OpId id) const;
  [[nodiscard]] std::string meet(OpId id);
  [[nodiscard]] bool committed(OpId seen_by) const {
    return commit_ >= 0 && order_.over(commit_, seen_by);
  }

  const Program& program_;
  const OpOrder& order_;
  bool overwrites_early_ = false;  // the program has speculative updates
  bool has_tensor_ranks_ = false;  // tensor-parallel ranks reduce no gradients together
  OpId commit_ = -1;
  OpId meeting_ = -1;         // kMeet after the commit
  std::vector<OpId> writes_;  // disk writes of deferred updates
};

}  // namespace sluice
