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

  // The calls that follow concern operation `op`. Called in the order of the program.
  void enter(OpId op) { now_ = op; }
  [[nodiscard]] OpId now() const { return now_; }
  // Whether `other` is known to have completed where the operation begins.
  [[nodiscard]] bool over(OpId other) const { return order_.over(other, now_); }

  // Records a fault of the operation. An empty text records nothing.
  void fail(const std::string& what);
  // Records a fault unless `other` is known to have completed. `what`: message text that precedes
  // "operation 7".
  void need(OpId other, const char* what);
  // Records a fault of the program as a whole.
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
