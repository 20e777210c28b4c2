// Derives which operations are known to have completed when an operation begins, from the program's
// waits and lanes. Pure.
//
// Operation X knows that the following operations have completed: the operations that X waits for;
// compute operations issued before X; the operation before X on a lane that runs one operation at a
// time; the operation of X's kind before X on the pipe lane; and all operations that these
// operations know to have completed. The disk completes operations in any order.
#pragma once

#include <vector>

#include "base/index.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

class OpOrder {
 public:
  // REQUIRES: waits point back.
  explicit OpOrder(const Program& program);

  // Whether `op` is known to have completed where operation `seen_by` begins.
  [[nodiscard]] bool over(OpId op, OpId seen_by) const { return knows(nth(clocks_, seen_by), op); }
  // Whether the executing thread knows that `op` has completed at the end of the program.
  [[nodiscard]] bool over_at_end(OpId op) const { return knows(now_, op); }

 private:
  // Operations form chains. Each operation of a chain knows that the previous one has completed.
  // Each lane that runs one operation at a time has one chain. The pipe lane has one chain per kind
  // of message. The disk has one chain per operation that it may run at once. A clock holds, by
  // chain, the newest operation that has completed.
  using Clock = std::vector<OpId>;

  [[nodiscard]] bool knows(const Clock& clock, OpId op) const {
    const auto chain = static_cast<std::size_t>(nth(chain_, op));
    return chain < clock.size() && clock[chain] >= op;
  }
  void learn(Clock& clock, OpId op) const;
  [[nodiscard]] int chain_for(const Op& op, const Clock& clock) const;

  std::vector<int> chain_;     // by operation
  std::vector<Clock> clocks_;  // by operation
  std::vector<OpId> newest_;   // by chain
  Clock now_;                  // of the executing thread
};

}  // namespace sluice
