// What operations on parameters and units read and write, and what they must find.
#include <algorithm>

#include "runtime/program/write/use_order.hpp"
#include "tests/runtime/program/tier_play.hpp"

namespace sluice {
namespace {

bool opens(const Op& op, int g) {
  return std::find(op.opens.begin(), op.opens.end(), g) != op.opens.end();
}

}  // namespace

Task TierPlay::task_of(const Op& op) {
  if (op.chunk >= 0) return task_of_chunk(op);
  switch (op.kind) {
    case OpKind::kLoadBatch: {
      Task task;
      batch_[op.micro_batch] = op.live.at(0);
      task.writes = {buffer(op.live.at(0))};
      task.work = [this, &op](const std::vector<Cells>&) {
        return std::vector<Cells>{{thing(Thing::kBatch, 0, op.micro_batch, version_)}};
      };
      return task;
    }
    case OpKind::kGather:
    case OpKind::kReadShard:
    case OpKind::kFetchShard:
      return gather(op);
    case OpKind::kRelease:
      return {};
    case OpKind::kForward:
    case OpKind::kLossHead:
    case OpKind::kBackward:
    case OpKind::kBackwardWeights:
      return run_unit(op);
    case OpKind::kReduceGrads:
      return reduce(op);
    case OpKind::kStoreGrads:
    case OpKind::kReadBucket:
    case OpKind::kWriteBucket:
      return store(op);
    case OpKind::kAddGrads:
      return add_streams(op);
    case OpKind::kGatherGrads:
      return gather_grads(op);
    case OpKind::kNormAndScale:
      return norm();
    case OpKind::kUpdate:
      return update_on_device(op);
    case OpKind::kSaveInput:
    case OpKind::kWriteInput:
    case OpKind::kReadInput:
    case OpKind::kFetchInput:
      return move_input(op);
    case OpKind::kReadStates:
    case OpKind::kCopyGrads:
    case OpKind::kReadGrads:
    case OpKind::kWriteStates:
    case OpKind::kCopyParams:
    case OpKind::kWriteParams:
    case OpKind::kSumSquares:  // these are of a chunk
    case OpKind::kRoundGrads:  // played in replay.cpp alone
      return {};
    case OpKind::kCommit:
    case OpKind::kMeet:
      return commit(op);
    case OpKind::kAddReplicas:
      return add_replicas(op);
    case OpKind::kSendActivation:
    case OpKind::kReceiveActivation:
    case OpKind::kSendGradient:
    case OpKind::kReceiveGradient:
      return cross(op);
  }
  return {};
}

Task TierPlay::copy(Region from, Region to) {
  Task task;
  task.reads = {from};
  task.writes = {to};
  task.work = [](const std::vector<Cells>& seen) { return seen; };
  return task;
}

// --- parameters ---

Task TierPlay::gather(const Op& op) {
  const int g = op.group;
  const std::int64_t shard = group(g).shard_elems;
  const std::int64_t element = size_of(shape_.dtype);
  const bool rounds = rounds_master(shape_, g);
  const Region mine = whole((rounds ? states_ : params_)[static_cast<std::size_t>(g)]);
  const Tier tier = parameter_tier(shape_, g);
  if (op.kind == OpKind::kReadShard) return read_shard(op);
  Region place;
  if (!group(g).resident) {
    place = buffer_part(op.device_slot, dp_rank_ * shard, shard, element);
  }
  if (op.kind == OpKind::kFetchShard) {
    return copy(nvme(tier) ? buffer_part(op.host_slot, 0, shard, element) : mine, place);
  }
  Task task;
  task.reads = {tier == Tier::kDevice ? mine : place};
  task.writes = {group(g).resident ? whole(others_[static_cast<std::size_t>(g)])
                                   : buffer_part(op.device_slot, 0, group(g).elems, element)};
  const std::size_t values = values_in(task.writes[0]);
  task.work = [this, g, values, rounds](const std::vector<Cells>& seen) {
    const bool right = rounds
                           ? std::all_of(seen[0].begin(), seen[0].end(),
                                         [this](Cell state) {
                                           return version_in(state) == static_cast<Cell>(version_);
                                         })
                           : seen[0] == params_of(g, 0, seen[0].size(), version_);
    expect(right, "gathers parameters of another version");
    return std::vector<Cells>{Cells(values, thing(Thing::kWhole, g, 0, version_))};
  };
  return task;
}

// From wherever each chunk's parameters are.
Task TierPlay::read_shard(const Op& op) {
  Task task;
  for (std::size_t c = 0; c < program_->chunks.size(); ++c) {
    if (program_->chunks[c].group != op.group) continue;
    task.reads.push_back(params_at(static_cast<int>(c), false));
  }
  task.writes = {buffer_part(op.host_slot, 0, group(op.group).shard_elems, size_of(shape_.dtype))};
  task.work = [](const std::vector<Cells>& seen) {
    Cells all;
    for (const Cells& part : seen) all.insert(all.end(), part.begin(), part.end());
    return std::vector<Cells>{std::move(all)};
  };
  return task;
}

// --- units ---

void TierPlay::read_params(const Op& op, Task& task, std::vector<int>& groups) {
  const UnitShape& unit = shape_.units[static_cast<std::size_t>(op.unit)];
  if (op.kind == OpKind::kBackward && !unit.backward_reads_params) return;
  if (op.kind == OpKind::kBackwardWeights) return;
  for (const int g : unit.groups) {
    const auto at = static_cast<std::size_t>(g);
    if (!group(g).resident) {
      task.reads.push_back(buffer_part(gathered_.at(g), 0, group(g).elems, size_of(shape_.dtype)));
      groups.push_back(-1 - g);
      continue;
    }
    task.reads.push_back(whole(params_[at]));
    groups.push_back(g);
    if (!is_gathered(shape_, g)) continue;
    task.reads.push_back(whole(others_[at]));
    groups.push_back(-1 - g);
  }
}

// What a unit reads beside parameters. Returns what it must find.
Cells TierPlay::read_tensors(const Op& op, Task& task) const {
  const int u = op.unit;
  const int m = op.micro_batch;
  Cells expected;
  const auto read = [&](BufferId b, Thing what, int a) {
    task.reads.push_back(buffer(b));
    expected.push_back(thing(what, a, m, version_));
  };
  if (op.kind == OpKind::kBackwardWeights) {
    read(kept_.at({u, m}), Thing::kKept, u);
    return expected;
  }
  if (has_input(shape_, u)) read(input_.at({u, m}), Thing::kInput, u);
  if (!has_input(shape_, u) || op.kind == OpKind::kLossHead) {
    read(batch_.at(m), Thing::kBatch, 0);
  }
  if (op.kind == OpKind::kBackward) {
    const auto received = received_.find({u, m});
    read(received != received_.end() ? received->second : gradient_.at({u + 1, m}),
         Thing::kGradient, u + 1);
    if (kept_.count({u, m}) > 0) read(kept_.at({u, m}), Thing::kKept, u);
  }
  return expected;
}

// What it makes. Returns with what it fills that.
Cells TierPlay::write_tensors(const Op& op, Task& task) {
  const int u = op.unit;
  const int m = op.micro_batch;
  Cells written;
  const auto write = [&](BufferId b, Thing what, int a) {
    task.writes.push_back(buffer(b));
    written.push_back(thing(what, a, m, version_));
  };
  for (const BufferId b : op.live) {
    const Buffer& made = program_->buffers[static_cast<std::size_t>(b)];
    if (made.tag == Tag::kActivationGradients) {
      write(b, Thing::kGradient, u);
      gradient_[{u, m}] = b;
    } else if (made.tag == Tag::kActivations && made.unit >= 0) {
      write(b, Thing::kInput, u + 1);
      input_[{u + 1, m}] = b;
    } else if (made.tag == Tag::kActivations && made.micro_batch >= 0) {
      write(b, Thing::kInput, u + 1);  // another stage's
    } else if (made.tag == Tag::kActivations) {
      write(b, Thing::kKept, u);
      kept_[{u, m}] = b;
    }
  }
  return written;
}

void TierPlay::check_params(const std::vector<int>& groups, const std::vector<Cells>& seen) {
  for (std::size_t r = 0; r < groups.size(); ++r) {
    const int g = groups[r];
    if (g < 0) {
      expect_all(seen[r], thing(Thing::kWhole, -1 - g, 0, version_),
                 "reads parameters of another version");
    } else {
      expect(seen[r] == params_of(g, 0, seen[r].size(), version_),
             "reads own parameters of another version");
    }
  }
}

Task TierPlay::run_unit(const Op& op) {
  Task task;
  std::vector<int> groups;  // of the first reads: own part, or -1 - g: gathered
  read_params(op, task, groups);
  const Cells expected = read_tensors(op, task);
  const Cells written = write_tensors(op, task);
  if (kind_ == PlayKind::kTrain && op.kind != OpKind::kForward && !op.split) {
    write_grads(op, task);
  }
  task.work = [this, &op, groups, expected, written,
               writes = task.writes](const std::vector<Cells>& seen) {
    check_params(groups, seen);
    std::size_t r = groups.size();
    for (const Cell cell : expected) {
      expect_all(seen[r++], cell, "reads another unit's or micro-batch's tensors");
    }
    std::vector<Cells> results;
    for (std::size_t w = 0; w < written.size(); ++w) {
      results.emplace_back(values_in(writes[w]), written[w]);
    }
    const std::vector<int>& mine = shape_.units[static_cast<std::size_t>(op.unit)].groups;
    for (std::size_t w = written.size(); w < writes.size(); ++w) {
      const int g = mine[w - written.size()];
      Cells sum = opens(op, g) ? Cells(values_in(writes[w]), 0) : seen[r++];
      for (Cell& c : sum) c += gradient_of(g, op.unit, op.micro_batch, version_);
      results.push_back(std::move(sum));
    }
    return results;
  };
  return task;
}

// Of other stages only what they send is there: whole, whenever the adversary lets it come.
Task TierPlay::cross(const Op& op) {
  const int m = op.micro_batch;
  const bool activation =
      op.kind == OpKind::kSendActivation || op.kind == OpKind::kReceiveActivation;
  const bool sends = op.kind == OpKind::kSendActivation || op.kind == OpKind::kSendGradient;
  // What goes up is named by the unit it goes into, what goes down by the one it comes out of.
  const int unit = op.unit + (sends == activation ? 1 : 0);
  const Cell cell = thing(activation ? Thing::kInput : Thing::kGradient, unit, m, version_);
  Task task;
  if (sends) {
    task.reads = {buffer(op.device_slot)};
    task.work = [this, cell](const std::vector<Cells>& seen) {
      expect_all(seen[0], cell, "sends something else");
      return std::vector<Cells>{};
    };
    return task;
  }
  (activation ? input_ : received_)[{op.unit, m}] = op.device_slot;
  task.writes = {buffer(op.device_slot)};
  task.work = [cell, n = values_in(task.writes[0])](const std::vector<Cells>&) {
    return std::vector<Cells>{Cells(n, cell)};
  };
  return task;
}

void TierPlay::write_grads(const Op& op, Task& task) {
  for (const int g : shape_.units[static_cast<std::size_t>(op.unit)].groups) {
    task.writes.push_back(full_grads(g, 0, group(g).elems));
    if (!opens(op, g)) task.reads.push_back(task.writes.back());
  }
}

}  // namespace sluice
