// Runs a program: issues the operations in order and waits for their `waits`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ticket.hpp"
#include "runtime/program/executor_lanes.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

// Executes the operations.
class OpHandler {
 public:
  virtual ~OpHandler() = default;
  // Called on the executing thread, in the order of the program. Frees the buffers that die before
  // the operation and allocates its live ones. A compute operation's `waits` have completed.
  virtual void enter(const Op& /*op*/) {}
  // Called on the executing thread for compute and pipe, and for comm if no comm operation of the
  // program has waits; otherwise on the thread of the operation's lane. Operations of comm, pipe
  // and disk may return a Ticket. Operations of host and copy lanes complete before run() returns.
  virtual Ticket run(const Op& op) = 0;
  // Called on the executing thread after a compute operation. Frees the buffers that die after it.
  virtual void leave(const Op& /*op*/) {}
  // Called before and after the wait for the `waits` of a compute operation. For watchdogs.
  virtual void waiting(const Op& /*op*/, bool /*begins*/) {}
  // Asked for operations of comm, pipe and disk: whether another thread waits for the end, for
  // OpTiming, and then calls completed(). Not called for an operation that failed.
  [[nodiscard]] virtual bool watches_end(const Op& /*op*/) const { return false; }
  virtual void completed(const Op& /*op*/) {}
};

// Whether an operation of the lane may go on after OpHandler::run().
[[nodiscard]] constexpr bool goes_on(Lane lane) {
  return lane == Lane::kComm || lane == Lane::kPipe || lane == Lane::kDisk;
}

// Times of an operation, in microseconds of a steady clock.
struct OpTiming {
  std::int64_t wait_us = 0;   // the executing thread starts to wait for `waits`
  std::int64_t begin_us = 0;  // the executing thread starts to run or issue the operation
  std::int64_t end_us = 0;    // the executing thread has run or issued the operation
  // Start and end on a lane other than compute. For comm, pipe and disk the end is known only if it
  // is watched (otherwise 0), and their operations may overlap.
  std::int64_t lane_begin_us = 0;
  std::int64_t lane_end_us = 0;
};

// Runs all operations and waits for all of them; timings[i] is for operation i. An operation's
// exception is rethrown with the operation's name added. After an exception, issued operations may
// still run. The caller must then abort the collectives that the lanes' threads may wait for, and
// cancel `lanes`.
void execute(const Program& program, OpHandler& handler, LaneThreads& lanes,
             std::vector<OpTiming>& timings);

// "Forward unit 3, micro-batch 1"
[[nodiscard]] std::string describe(const Op& op);

}  // namespace sluice
