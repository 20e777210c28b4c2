#include "runtime/program/op_order.hpp"

#include <algorithm>

namespace sluice {

OpOrder::OpOrder(const Program& program) : newest_(kLaneCount, -1), now_(kLaneCount, -1) {
  chain_.reserve(program.ops.size());
  clocks_.reserve(program.ops.size());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    Clock clock = now_;
    for (const OpId w : op.waits) learn(clock, w);
    const auto lane = static_cast<std::size_t>(op.lane);
    if (op.lane != Lane::kDisk && newest_[lane] >= 0) learn(clock, newest_[lane]);
    const auto chain = static_cast<std::size_t>(chain_for(op, clock));
    if (chain == newest_.size()) newest_.push_back(-1);
    newest_[chain] = static_cast<OpId>(i);
    chain_.push_back(static_cast<int>(chain));
    clocks_.push_back(std::move(clock));
    if (op.lane != Lane::kCompute) continue;
    now_ = clocks_.back();
    learn(now_, static_cast<OpId>(i));
  }
}

// That the operation is over, and all that was over when it began.
void OpOrder::learn(Clock& clock, OpId op) const {
  const Clock& then = clocks_[static_cast<std::size_t>(op)];
  const auto chain = static_cast<std::size_t>(chain_[static_cast<std::size_t>(op)]);
  clock.resize(std::max({clock.size(), then.size(), chain + 1}), -1);
  for (std::size_t c = 0; c < then.size(); ++c) clock[c] = std::max(clock[c], then[c]);
  clock[chain] = std::max(clock[chain], op);
}

int OpOrder::chain_for(const Op& op, const Clock& clock) const {
  if (op.lane != Lane::kDisk) return static_cast<int>(op.lane);
  const auto disk = static_cast<std::size_t>(Lane::kDisk);
  for (std::size_t c = disk; c < newest_.size(); ++c) {
    const OpId last = newest_[c];
    if (last < 0 || (c < clock.size() && clock[c] >= last)) return static_cast<int>(c);
  }
  return static_cast<int>(newest_.size());
}

}  // namespace sluice
