// The rules of a program whose states on NVMe are an image (Program::image): program_check.hpp
// states them. Pure.
#pragma once

#include <string>
#include <vector>

#include "runtime/program/check/op_order.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

class ImageCheck {
 public:
  ImageCheck(const Program& program, const OpOrder& order);

  // In the order of the program, of every operation. Empty, or what is wrong with it.
  [[nodiscard]] std::string enter(OpId op);
  // After the last operation of a program that trains.
  [[nodiscard]] std::string fault_at_end() const;

  // Whether a read or a write of a chunk's states is of its second place: the one that is current
  // from this program's deferred updates on.
  [[nodiscard]] bool in_second_place(const Op& op) const {
    const bool writes = op.kind == OpKind::kWriteStates;
    if (!program_.image) return writes && op.speculative;
    return op.ahead || writes != op.speculative;
  }

 private:
  [[nodiscard]] std::string commit(OpId id);
  [[nodiscard]] std::string overwrite(OpId id) const;
  [[nodiscard]] bool committed(OpId seen_by) const {
    return commit_ >= 0 && order_.over(commit_, seen_by);
  }

  const Program& program_;
  const OpOrder& order_;
  bool overwrites_early_ = false;  // some chunk is updated before the norm
  bool has_tensor_ranks_ = false;  // which reduce no gradients with this one
  OpId commit_ = -1;
  OpId meeting_ = -1;         // the first backward that waits for it
  std::vector<OpId> writes_;  // of deferred updates, to the disk
};

}  // namespace sluice
