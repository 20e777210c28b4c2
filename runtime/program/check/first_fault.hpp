// Collects faults from the parts of the checker, operation by operation, and keeps the first. Pure.
#pragma once

#include <string>

#include "runtime/program/check/op_order.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

// "operation 12 (Forward) "
[[nodiscard]] std::string name_in_fault(const Program& program, OpId op);

class FirstFault {
 public:
  FirstFault(const Program& program, const OpOrder& order) : program_(program), order_(order) {}

  // Following calls are about operation `op`. Called in the order of the program.
  void enter(OpId op) { now_ = op; }
  [[nodiscard]] OpId now() const { return now_; }
  // Whether `other` is known to have completed where the operation begins.
  [[nodiscard]] bool over(OpId other) const { return order_.over(other, now_); }

  // The operation is at fault; empty text: it is not.
  void fail(const std::string& what);
  // The operation requires `other` to have completed. `what` is the complaint up to "operation 7".
  void need(OpId other, const char* what);
  // The program is at fault, and no single operation.
  void fail_whole(const std::string& what);

  [[nodiscard]] bool found() const { return !text_.empty(); }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  const Program& program_;
  const OpOrder& order_;
  OpId now_ = -1;
  std::string text_;
};

}  // namespace sluice
