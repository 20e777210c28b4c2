// One thread for each lane beside compute: takes operations in the order given, waits for what each
// needs, starts it.
//
// submit() and cancel() from one thread. Tickets are waited for by anybody. A lane's thread is made
// at its first operation and has the maker's floating-point control (flush-to-zero).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "base/ticket.hpp"
#include "runtime/program/program.hpp"

namespace sluice {

// Called on the threads, where their waits are not the host's (offload/device_copies.hpp). Empty:
// nothing is.
struct LaneHooks {
  std::function<void()> begins;  // once on each, before all else there; where it throws, again
  std::function<void()> waited;  // after it has waited for Tickets; may throw, as these may
};

class LaneThreads {
 public:
  explicit LaneThreads(LaneHooks hooks = {});
  ~LaneThreads();  // cancel()
  LaneThreads(const LaneThreads&) = delete;
  LaneThreads& operator=(const LaneThreads&) = delete;

  // `start` runs on the lane's thread once `waits` are over; the result is done when what it
  // returns is. Where a wait or `start` throws, the Ticket does, and the lane goes on with the
  // next.
  [[nodiscard]] Ticket submit(Lane lane, std::vector<Ticket> waits, std::function<Ticket()> start);

  // Calls `over` on a thread of the wire's own once `ticket` is done, on one wire in the order
  // given: for times. What the ticket throws is its waiters' to see. `wire`: any numbers from 0 on;
  // what may be over in another order than it was started is on different ones.
  void when_done(std::size_t wire, Ticket ticket, std::function<void()> over);
  // Waits for all of these.
  void settle();

  // Fails what has not started, and waits for what is running. What was started and has a Ticket of
  // its own may still be under way.
  void cancel() noexcept;

 private:
  class Worker;
  [[nodiscard]] Worker& worker(std::size_t at);

  const LaneHooks hooks_;
  std::vector<std::unique_ptr<Worker>> workers_;  // by lane; after them those that watch, by wire
};

}  // namespace sluice
