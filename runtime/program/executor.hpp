// Runs a program: issues its operations in order and waits where it says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ticket.hpp"
#include "runtime/program/executor_lanes.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

// What the operations do.
class OpHandler {
 public:
  virtual ~OpHandler() = default;
  // On the executing thread, in the order of the program: what dies before the operation and what
  // comes to life with it. An operation of the compute lane has waited for its `waits`.
  virtual void enter(const Op& /*op*/) {}
  // On the thread of the operation's lane, which for compute is the executing thread; the wire's is
  // too, in a program in which nothing on the wire waits. Those of the host and of copies run to
  // their end; those of the wire and the disk may return a Ticket.
  virtual Ticket run(const Op& op) = 0;
  // On the executing thread, after an operation of the compute lane: what dies after it.
  virtual void leave(const Op& /*op*/) {}
  // Around the wait for what `op` needs, where it needs anything: for watchdogs.
  virtual void waiting(const Op& /*op*/, bool /*begins*/) {}
};

// When an operation was where. Microseconds of a steady clock.
struct OpTiming {
  std::int64_t wait_us = 0;   // the executing thread began to wait for `waits`
  std::int64_t begin_us = 0;  // it began to run or to issue
  std::int64_t end_us = 0;
  // Of another lane's operation: when it was started there, and when it was over. Of the wire's and
  // the disk's the end is known where `ends` was asked for, else 0; they may have been started
  // while others were still under way.
  std::int64_t lane_begin_us = 0;
  std::int64_t lane_end_us = 0;
};

// Runs all operations; timings[i] is for operation i. What an operation throws, at once or when it
// is waited for, comes through with its name added. Waits for everything issued before it returns
// normally; after an exception, what was issued may still be under way: `lanes` has to be
// cancelled, once what its threads may wait for (collectives) has been aborted. `ends`: a thread
// watches when what is on the wire and at the disk is over; for traces.
void execute(const Program& program, OpHandler& handler, LaneThreads& lanes,
             std::vector<OpTiming>& timings, bool ends = false);

// "Forward unit 3, micro-batch 1"
[[nodiscard]] std::string describe(const Op& op);

}  // namespace sluice
