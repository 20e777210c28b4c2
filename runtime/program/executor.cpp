#include "runtime/program/executor.hpp"

#include <algorithm>
#include <chrono>
#include <exception>

#include "base/error.hpp"
#include "base/index.hpp"

namespace sluice {
namespace {

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Rethrows the operation's failure to the waiter, with the operation's name added.
void wait_for(const Op& op, const Ticket& ticket) {
  try {
    ticket.wait();
  } catch (const std::exception&) {
    std::throw_with_nested(Error(describe(op)));
  }
}

}  // namespace

std::string describe(const Op& op) {
  std::string text(name_of(op.kind));
  if (op.unit >= 0) text += " unit " + std::to_string(op.unit);
  if (op.group >= 0) text += " group " + std::to_string(op.group);
  if (op.bucket >= 0) text += " bucket " + std::to_string(op.bucket);
  if (op.chunk >= 0) text += " chunk " + std::to_string(op.chunk);
  if (op.micro_batch >= 0) text += ", micro-batch " + std::to_string(op.micro_batch);
  return text;
}

namespace {

// Whether comm needs a thread: a collective that waits must not block the executing thread.
bool wire_waits(const Program& program) {
  return std::any_of(program.ops.begin(), program.ops.end(),
                     [](const Op& op) { return op.lane == Lane::kComm && !op.waits.empty(); });
}

// The state of a Ticket that adds its operation's name to a failure.
class Named final : public TicketState {
 public:
  Named(const Op& op, Ticket ticket) : op_(op), ticket_(std::move(ticket)) {}
  void wait() override { wait_for(op_, ticket_); }
  bool done() override { return ticket_.done(); }

 private:
  const Op& op_;
  Ticket ticket_;
};

Ticket submit(const Program& program, std::size_t i, OpHandler& handler, LaneThreads& lanes,
              const std::vector<Ticket>& tickets, OpTiming& timing) {
  const Op& op = program.ops[i];
  std::vector<Ticket> waits;
  waits.reserve(op.waits.size());
  for (const OpId w : op.waits) waits.push_back(nth(tickets, w));
  auto start = [&op, &handler, &timing] {
    timing.lane_begin_us = now_us();
    Ticket ticket = handler.run(op);
    if (op.lane != Lane::kComm && op.lane != Lane::kDisk) timing.lane_end_us = now_us();
    return ticket;
  };
  return Ticket(
      std::make_shared<Named>(op, lanes.submit(op.lane, std::move(waits), std::move(start))));
}

// The wire for LaneThreads::when_done(). Each kind of message has its own wire, because a receive
// that is posted early and completes late must not delay the times of other operations.
std::size_t wire_of(const Op& op) {
  const bool pipe = op.lane == Lane::kPipe;
  return static_cast<std::size_t>(pipe ? kLaneCount + pipe_wire(op.kind)
                                       : static_cast<int>(op.lane));
}

Ticket run_here(const Op& op, OpHandler& handler) {
  try {
    return handler.run(op);
  } catch (const std::exception&) {
    std::throw_with_nested(Error(describe(op)));
  }
}

// Drops the tickets of completed operations, so that their requests and closures do not pile up
// until the step ends. Waiting for a done ticket does not block, but may throw.
void let_go(std::vector<Ticket>& tickets, std::size_t& open, std::size_t end) {
  for (; open < end && tickets[open].done(); ++open) {
    tickets[open].wait();
    tickets[open] = {};
  }
}

}  // namespace

void execute(const Program& program, OpHandler& handler, LaneThreads& lanes,
             std::vector<OpTiming>& timings) {
  std::vector<Ticket> tickets(program.ops.size());
  timings.assign(program.ops.size(), {});
  const bool wire_has_thread = wire_waits(program);
  std::size_t open = 0;  // the first operation whose ticket is still held
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    OpTiming& timing = timings[i];
    // Not between compute operations that a GPU may record as one graph (graph_segments.hpp): a
    // wait for what is outside of the graph would be an error.
    if (op.lane != Lane::kCompute || !op.waits.empty()) let_go(tickets, open, i);
    const bool here = op.lane == Lane::kCompute || op.lane == Lane::kPipe ||
                      (op.lane == Lane::kComm && !wire_has_thread);
    timing.wait_us = now_us();
    if (op.lane == Lane::kCompute && !op.waits.empty()) {
      handler.waiting(op, true);
      for (const OpId w : op.waits) nth(tickets, w).wait();
      handler.waiting(op, false);
    }
    timing.begin_us = now_us();
    handler.enter(op);
    if (here) {
      if (op.lane != Lane::kCompute) timing.lane_begin_us = now_us();
      const Ticket ticket = run_here(op, handler);
      tickets[i] = op.lane == Lane::kCompute ? ticket : Ticket(std::make_shared<Named>(op, ticket));
    } else {
      tickets[i] = submit(program, i, handler, lanes, tickets, timing);
    }
    if (goes_on(op.lane) && handler.watches_end(op)) {
      lanes.when_done(wire_of(op), tickets[i], [&timing, &handler, &op] {
        timing.lane_end_us = now_us();
        handler.completed(op);
      });
    }
    if (op.lane == Lane::kCompute) handler.leave(op);
    timing.end_us = now_us();
  }
  for (const Ticket& ticket : tickets) ticket.wait();
  lanes.settle();
}

}  // namespace sluice
