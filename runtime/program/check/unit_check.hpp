// Checks the order of units, and their messages to and from other pipeline stages;
// program_check.hpp states the rules. Pure.
#pragma once

#include <set>
#include <tuple>
#include <utility>

#include "runtime/program/check/first_fault.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

class UnitCheck {
 public:
  UnitCheck(const Program& program, FirstFault& fault);

  // Called for every operation, in the order of the program.
  void enter(const Op& op);
  // Called after the last operation.
  void at_end();

  [[nodiscard]] bool trains() const { return trains_; }
  // Every forward so far had its backward.
  [[nodiscard]] bool all_back() const { return forwards_.empty(); }

 private:
  [[nodiscard]] bool ran(OpKind kind, int unit, int micro_batch) const {
    return ran_.count({kind, unit, micro_batch}) > 0;
  }
  void run_once(const Op& op);
  void cross(const Op& op);
  void compute(const Op& op);
  void go_forward(const Op& op);
  void go_back(const Op& op);

  FirstFault& fault_;
  const bool decodes_;  // the last stage takes no targets
  const int first_backward_;
  bool trains_ = false;
  std::set<int> units_;
  std::set<int> fed_;                               // units that get their input from another stage
  std::set<int> feeds_;                             // units whose output goes to another stage
  std::set<int> paid_;                              // units whose output gradient comes from one
  std::set<int> pays_;                              // units whose input gradient goes to one
  std::set<int> loaded_;                            // micro-batches
  std::set<std::tuple<OpKind, int, int>> ran_;      // kind, unit, micro-batch
  std::set<std::tuple<OpKind, int, int>> to_send_;  // sends to come: kind, unit, micro-batch
  std::set<std::pair<int, int>> forwards_;          // unit, micro-batch; backward to come
  std::set<std::pair<int, int>> halves_;            // split backwards; kBackwardWeights to come
};

}  // namespace sluice
