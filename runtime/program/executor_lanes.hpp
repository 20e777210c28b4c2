// One thread per lane other than compute. The thread takes operations in the order of submission,
// waits for the `waits` of each and starts it.
//
// One thread calls submit() and cancel(). Any thread may wait for a Ticket. A lane's thread is
// created at its first operation and inherits the creator's floating-point control (flush-to-zero).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "base/ticket.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

// Functions that the lanes' threads call if copies run on the device (offload/device_copies.hpp).
// Empty: no call.
struct LaneHooks {
  std::function<void()> begins;  // once per thread, first; called again if it throws
  std::function<void()> waited;  // after the waits of each operation; may throw
};

class LaneThreads {
 public:
  explicit LaneThreads(LaneHooks hooks = {});
  ~LaneThreads();  // cancel()
  LaneThreads(const LaneThreads&) = delete;
  LaneThreads& operator=(const LaneThreads&) = delete;

  // `start` runs on the lane's thread once `waits` are done. The result is done when the Ticket
  // that `start` returns is done. If a wait or `start` throws, the result throws, and the lane
  // continues with the next operation.
  [[nodiscard]] Ticket submit(Lane lane, std::vector<Ticket> waits, std::function<Ticket()> start);

  // Calls `over` once `ticket` is done, on a thread per `wire`; for times. Calls of one wire come
  // in the order of submission. An exception of the ticket suppresses `over` and reaches only the
  // ticket's waiters. `wire` >= 0. Operations that may complete out of order need different wires.
  void when_done(std::size_t wire, Ticket ticket, std::function<void()> over);
  // Waits for all calls of when_done(); does nothing without one.
  void settle();

  // Fails the operations that have not started, and waits for each running `start`. The Tickets
  // that `start` returned may not be done yet.
  void cancel() noexcept;

 private:
  class Worker;
  [[nodiscard]] Worker& worker(std::size_t at);

  const LaneHooks hooks_;
  std::vector<std::unique_ptr<Worker>> workers_;  // by lane, then by wire of when_done()
};

}  // namespace sluice
