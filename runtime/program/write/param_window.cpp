#include "runtime/program/write/param_window.hpp"

#include <algorithm>
#include <utility>

#include "base/index.hpp"

namespace sluice {

ParamWindow::ParamWindow(ProgramBuilder& builder, const StepShape& shape, std::span<const Use> uses,
                         UpdateFlow& updates)
    : builder_(builder),
      shape_(shape),
      uses_(uses),
      updates_(updates),
      ahead_(gathers_alone(shape) ? 0 : shape.prefetch_units),
      gathered_(shape.groups.size()) {}

void ParamWindow::gather_residents() {
  for (const int g : groups_by_first_use(shape_)) {
    if (nth(shape_.groups, g).resident && is_gathered(shape_, g)) gather(g);
  }
}

void ParamWindow::gather(int g) {
  const GroupShape& group = nth(shape_.groups, g);
  Gather& state = nth(gathered_, g);
  const std::int64_t element_bytes = size_of(shape_.dtype);
  const bool alone = gathers_alone(shape_);
  Op op{.kind = OpKind::kGather, .lane = alone ? Lane::kCompute : Lane::kComm, .group = g};
  op.wire_bytes = (shape_.dp - 1) * group.shard_elems * element_bytes;
  if (!group.resident) {
    state.slot = builder_.buffer(Tag::kGatheredParameters, group.elems * element_bytes, true, g);
    op.device_slot = state.slot;
  }
  if (parameter_tier(shape_, g) == Tier::kDevice) {
    op.waits = update_of(g);
    if (!group.resident) op.live.push_back(state.slot);
  } else {
    fetch_shard(g, op);
  }
  state.op = builder_.emit(std::move(op));
  state.live = true;
  state.waited = alone;
}

// The operations that the group's first use must wait for; empty for later uses.
std::vector<OpId> ParamWindow::update_of(int g) {
  Gather& state = nth(gathered_, g);
  updates_.advance(g);
  return std::exchange(state.updated, true) ? std::vector<OpId>{} : updates_.ready(g);
}

void ParamWindow::fetch_shard(int g, Op& gather) {
  Gather& state = nth(gathered_, g);
  const std::int64_t bytes = nth(shape_.groups, g).shard_elems * size_of(shape_.dtype);
  Op fetch{.kind = OpKind::kFetchShard, .lane = Lane::kToDevice, .group = g, .live = {state.slot}};
  fetch.device_slot = state.slot;
  fetch.moved_bytes = bytes;
  fetch.waits = update_of(g);
  if (parameter_tier(shape_, g) == Tier::kNvme) {
    state.staging = builder_.buffer({.tag = Tag::kParameterStaging,
                                     .bytes = bytes,
                                     .in_arena = true,
                                     .group = g,
                                     .tier = Tier::kHost});
    Op read{.kind = OpKind::kReadShard, .lane = Lane::kDisk, .group = g, .live = {state.staging}};
    read.host_slot = state.staging;
    fetch.host_slot = state.staging;
    read.waits = std::move(fetch.waits);
    read.moved_bytes = bytes;
    fetch.waits = {builder_.emit(std::move(read))};
  }
  gather.waits = {builder_.emit(std::move(fetch))};
}

std::vector<int> ParamWindow::params_of(const Use& use) const {
  const UnitShape& unit = nth(shape_.units, use.unit);
  if (use.kind == OpKind::kBackwardWeights) return {};
  if (use.kind == OpKind::kBackward && !unit.backward_reads_params) return {};
  return unit.groups;
}

void ParamWindow::enter(std::size_t i, Op& op) {
  const int last = uses_[i].visit + ahead_;
  // Updates run ahead of the gathers that wait for them.
  for (std::size_t j = i; j < uses_.size() && uses_[j].visit <= last + 1; ++j) {
    for (const int g : params_of(uses_[j])) updates_.advance(g);
  }
  for (std::size_t j = i; j < uses_.size() && uses_[j].visit <= last; ++j) {
    for (const int g : params_of(uses_[j])) {
      if (!nth(shape_.groups, g).resident && !nth(gathered_, g).live) {
        gather(g);
      }
    }
  }
  op.reads = params_of(uses_[i]);
  for (const int g : op.reads) {
    Gather& gather = nth(gathered_, g);
    if (!is_gathered(shape_, g)) {
      const std::vector<OpId> update = update_of(g);
      op.waits.insert(op.waits.end(), update.begin(), update.end());
    }
    if (gather.op < 0 || gather.waited) continue;
    op.waits.push_back(gather.op);
    gather.waited = true;
    if (gather.staging >= 0) op.dead_before.push_back(std::exchange(gather.staging, -1));
  }
}

// Keeps the groups of the next use's window: a released group would be gathered again at once.
void ParamWindow::leave(std::size_t i) {
  for (const int g : params_of(uses_[i])) {
    bool needed = nth(shape_.groups, g).resident;
    for (std::size_t j = i + 1; j < uses_.size() && !needed; ++j) {
      if (uses_[j].visit > uses_[i + 1].visit + ahead_) break;
      const std::vector<int> params = params_of(uses_[j]);
      needed = std::find(params.begin(), params.end(), g) != params.end();
    }
    if (needed) continue;
    Gather& gather = nth(gathered_, g);
    builder_.emit({.kind = OpKind::kRelease, .group = g, .dead_after = {gather.slot}});
    gather.live = false;
  }
}

std::vector<int> groups_by_first_use(const StepShape& shape) {
  std::vector<int> order;
  for (const UnitShape& u : shape.units) {
    for (const int g : u.groups) {
      if (std::find(order.begin(), order.end(), g) == order.end()) order.push_back(g);
    }
  }
  return order;
}

}  // namespace sluice
