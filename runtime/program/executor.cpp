#include "runtime/program/executor.hpp"

#include <chrono>
#include <exception>

#include "kernels/base/error.hpp"

namespace sluice {
namespace {

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// An operation's failure is reported where it is waited for, under its own name.
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
  if (op.micro_batch >= 0) text += ", micro-batch " + std::to_string(op.micro_batch);
  return text;
}

void execute(const Program& program, OpHandler& handler, std::vector<OpTiming>& timings) {
  std::vector<Ticket> tickets(program.ops.size());
  timings.assign(program.ops.size(), {});
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    timings[i].wait_us = now_us();
    if (!op.waits.empty()) {
      handler.waiting(op, true);
      for (const OpId w : op.waits) {
        const auto id = static_cast<std::size_t>(w);
        wait_for(program.ops[id], tickets[id]);
      }
      handler.waiting(op, false);
    }
    timings[i].begin_us = now_us();
    try {
      tickets[i] = handler.run(op);
    } catch (const std::exception&) {
      std::throw_with_nested(Error(describe(op)));
    }
    timings[i].end_us = now_us();
  }
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].lane != Lane::kCompute) wait_for(program.ops[i], tickets[i]);
  }
}

}  // namespace sluice
