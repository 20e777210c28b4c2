// Where the parts of the checker put what they find, one operation after another: the first fault
// is the one that is told. Pure.
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

  // What follows is about operation `op`. In the order of the program.
  void enter(OpId op) { now_ = op; }
  [[nodiscard]] OpId now() const { return now_; }
  // Whether `other` is known to be over where it begins.
  [[nodiscard]] bool over(OpId other) const { return order_.over(other, now_); }

  // It is at fault; empty: it is not.
  void fail(const std::string& what);
  // What it does, in words that end before "operation 7", takes that one to be over.
  void need(OpId other, const char* what);
  // No one operation is at fault, the program is.
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
