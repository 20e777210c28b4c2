#include "runtime/program/check/op_order.hpp"

#include <algorithm>

#include "base/index.hpp"

namespace sluice {

namespace {

// One chain per lane. The pipe, the last lane, has one chain per wire.
constexpr std::size_t kFixedChains = static_cast<std::size_t>(kLaneCount) + kPipeWires - 1;
static_assert(static_cast<int>(Lane::kPipe) == kLaneCount - 1);

std::size_t fixed_chain(const Op& op) {
  const int wire = op.lane == Lane::kPipe ? pipe_wire(op.kind) : 0;
  return static_cast<std::size_t>(op.lane) + static_cast<std::size_t>(wire);
}

}  // namespace

OpOrder::OpOrder(const Program& program) : newest_(kFixedChains, -1), now_(kFixedChains, -1) {
  chain_.reserve(program.ops.size());
  clocks_.reserve(program.ops.size());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    Clock clock = now_;
    for (const OpId w : op.waits) learn(clock, w);
    const std::size_t fixed = fixed_chain(op);
    if (op.lane != Lane::kDisk && newest_[fixed] >= 0) learn(clock, newest_[fixed]);
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

// Adds to the clock the operation and all operations that it knows to have completed.
void OpOrder::learn(Clock& clock, OpId op) const {
  const Clock& then = nth(clocks_, op);
  const auto chain = static_cast<std::size_t>(nth(chain_, op));
  clock.resize(std::max({clock.size(), then.size(), chain + 1}), -1);
  for (std::size_t c = 0; c < then.size(); ++c) clock[c] = std::max(clock[c], then[c]);
  clock[chain] = std::max(clock[chain], op);
}

int OpOrder::chain_for(const Op& op, const Clock& clock) const {
  if (op.lane != Lane::kDisk) return static_cast<int>(fixed_chain(op));
  const auto free = [&](std::size_t c) {
    return newest_[c] < 0 || (c < clock.size() && clock[c] >= newest_[c]);
  };
  if (free(static_cast<std::size_t>(Lane::kDisk))) return static_cast<int>(Lane::kDisk);
  for (std::size_t c = kFixedChains; c < newest_.size(); ++c) {
    if (free(c)) return static_cast<int>(c);
  }
  return static_cast<int>(newest_.size());
}

}  // namespace sluice
