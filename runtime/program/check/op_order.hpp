// What is over when an operation begins, as far as a program's waits and lanes tell. Pure.
//
// An operation knows over: what it waited for, and all that knew over; all operations of the
// compute lane issued before it, and all they knew; on a lane that runs one at a time, the
// operation before it there; between pipeline stages, the one of its kind before it. Nothing is
// assumed of the disk's order.
#pragma once

#include <vector>

#include "runtime/program/program.hpp"

namespace sluice {

class OpOrder {
 public:
  // REQUIRES: waits point back.
  explicit OpOrder(const Program& program);

  // Whether `op` is known to be over where operation `seen_by` begins.
  [[nodiscard]] bool over(OpId op, OpId seen_by) const {
    return knows(clocks_[static_cast<std::size_t>(seen_by)], op);
  }
  // Whether the executing thread knows it over at the end of the program.
  [[nodiscard]] bool over_at_end(OpId op) const { return knows(now_, op); }

 private:
  // Operations are put in chains, in which each knows the one before over: one chain for a lane
  // that runs one at a time, one for each kind between stages, as many for the disk as it may have
  // under way. A clock has, by chain, the newest operation that is over.
  using Clock = std::vector<OpId>;

  [[nodiscard]] bool knows(const Clock& clock, OpId op) const {
    const auto chain = static_cast<std::size_t>(chain_[static_cast<std::size_t>(op)]);
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
