// Runs a program: issues its operations in order and waits where it says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm/ticket.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

// What the operations do. One call an operation, from the executing thread; an operation of the
// compute lane returns a Ticket that is done. Slots that come to life or die with the operation are
// the callee's to bind.
class OpHandler {
 public:
  virtual ~OpHandler() = default;
  virtual Ticket run(const Op& op) = 0;
  // Around the wait for what `op` needs, where it needs anything: for watchdogs.
  virtual void waiting(const Op& /*op*/, bool /*begins*/) {}
};

// When the executing thread was at an operation. Microseconds of a steady clock.
struct OpTiming {
  std::int64_t wait_us = 0;   // began to wait for `waits`
  std::int64_t begin_us = 0;  // began to run or to issue
  std::int64_t end_us = 0;
};

// Runs all operations; timings[i] is for operation i. What an operation throws, at once or when it
// is waited for, comes through with its name added. Waits for everything issued before it returns
// normally; after an exception, what was issued may still be under way.
void execute(const Program& program, OpHandler& handler, std::vector<OpTiming>& timings);

// "Forward unit 3, micro-batch 1"
[[nodiscard]] std::string describe(const Op& op);

}  // namespace sluice
