// What updates off the device and the traffic of unit inputs read and write, and what they must
// find.
#include <algorithm>

#include "runtime/program/write/use_order.hpp"
#include "tests/runtime/program/tier_play.hpp"
#include "zero/partition_plan.hpp"

namespace sluice {

// --- updates ---

Task TierPlay::update_on_device(const Op& op) {
  Task task;
  if (outcome_.thrown_away) return task;
  const int g = op.group;
  const auto at = static_cast<std::size_t>(g);
  const std::int64_t elems = device_elems(shape_, g);
  task.writes = {part(states_[at], 0, elems), part(params_[at], 0, elems)};
  task.reads = {whole(clip_), summed_grads(g, 0, elems), task.writes[0]};
  task.work = [this, g](const std::vector<Cells>& seen) {
    expect_all(seen[0], thing(Thing::kClip, 0, 0, version_), "clips by another step's norm");
    expect_all(seen[1], total(g, version_), "updates with other gradients");
    Cells states = seen[2];
    for (Cell& state : states) {
      expect(version_in(state) == static_cast<Cell>(version_), "updates another version");
      ++state;
    }
    const std::size_t values = states.size();
    return std::vector<Cells>{std::move(states), params_of(g, 0, values, version_ + 1)};
  };
  return task;
}

Region TierPlay::ring(const std::vector<int>& spaces, const Chunk& chunk) {
  expect(program_->chunk_slots > chunk.slot, "has no slot in the ring");
  return part(spaces.at(static_cast<std::size_t>(chunk.slot)), 0, chunk.elems);
}

// Where a chunk's states are, or are not.
Region TierPlay::states_at(int c, bool second) {
  const Chunk& chunk = program_->chunks[static_cast<std::size_t>(c)];
  const bool there = in_second_[static_cast<std::size_t>(c)] != second;
  const auto& spaces = there ? second_states_ : states_;
  return part(spaces[static_cast<std::size_t>(chunk.group)], chunk.begin, chunk.elems);
}

Region TierPlay::params_at(int c, bool second) {
  const Chunk& chunk = program_->chunks[static_cast<std::size_t>(c)];
  const bool there =
      has_second_params(shape_, chunk.group) && in_second_[static_cast<std::size_t>(c)] != second;
  const auto& spaces = there ? second_params_ : params_;
  return part(spaces[static_cast<std::size_t>(chunk.group)], chunk.begin, chunk.elems);
}

Task TierPlay::task_of_chunk(const Op& op) {
  if (kind_ == PlayKind::kRemake) {
    const bool replaced =
        replaces_params_early(shape_, op.group) && speculated_[static_cast<std::size_t>(op.chunk)];
    return replaced ? make_params(op) : Task{};
  }
  const bool sums = op.kind == OpKind::kSumSquares || op.kind == OpKind::kReadGrads;
  if (op.speculative ? !outcome_.speculates && !sums : !updates_ && !sums && !op.ahead) return {};
  if (!op.speculative && kept_chunks_[static_cast<std::size_t>(op.chunk)]) {
    return writes_params_early(shape_, op.group) ? Task{} : make_params(op);
  }
  const bool can_wait =
      op.kind == OpKind::kUpdate || op.kind == OpKind::kCopyGrads || op.kind == OpKind::kCopyParams;
  if (op.speculative && can_wait && outcome_.is_late(op.chunk)) return {};
  if (op.kind == OpKind::kUpdate) return update_chunk(op);
  if (op.kind == OpKind::kCopyParams || op.kind == OpKind::kWriteParams) {
    return params_of_chunk(op);
  }
  return move_chunk(op);
}

// Of a chunk whose states are as they should be: its parameters have still to get to theirs.
Task TierPlay::make_params(const Op& op) {
  const Chunk& chunk = program_->chunks[static_cast<std::size_t>(op.chunk)];
  const Tier params = parameter_tier(shape_, chunk.group);
  if (op.kind == OpKind::kCopyParams || op.kind == OpKind::kWriteParams) {
    return params_of_chunk(op);
  }
  Task task;
  if (keeps_remainders(shape_, op.group)) {
    if (op.kind != OpKind::kUpdate) return task;
    const int second = second_params_[static_cast<std::size_t>(chunk.group)];
    task.reads = {part(second, chunk.begin, chunk.elems)};
    task.writes = {params_at(op.chunk, false)};
    task.work = [this, &chunk](const std::vector<Cells>& seen) {
      expect(seen[0] == params_of(chunk.group, chunk.begin, seen[0].size(), version_),
             "keeps another update's parameters");
      return seen;
    };
    return task;
  }
  if (op.kind == OpKind::kReadStates) return move_chunk(op);
  if (op.kind != OpKind::kUpdate) return task;
  const bool from_ring = nvme(optimizer_tier(shape_, chunk.group));
  task.reads = {from_ring ? ring(ring_states_, chunk) : states_at(op.chunk, false)};
  if (params == Tier::kHost) {
    task.writes = {params_at(op.chunk, false)};
  } else if (shape_.dtype != DType::kFloat32) {
    task.writes = {ring(ring_weights_, chunk)};
  }
  task.work = [this, &chunk, n = task.writes.size()](const std::vector<Cells>& seen) {
    for (const Cell state : seen[0]) {
      expect(version_in(state) == static_cast<Cell>(version_), "keeps another update");
    }
    const Cells params = params_of(chunk.group, chunk.begin, seen[0].size(), version_);
    return std::vector<Cells>(n, params);
  };
  return task;
}

Task TierPlay::update_chunk(const Op& op) {
  Task task;
  const Chunk& chunk = program_->chunks[static_cast<std::size_t>(op.chunk)];
  const int g = chunk.group;
  const auto at = static_cast<std::size_t>(g);
  const Placement& p = shape_.placement;
  const bool in_ring = nvme(optimizer_tier(shape_, g));
  const Region states = in_ring ? ring(ring_states_, chunk) : states_at(op.chunk, false);
  const bool split = keeps_remainders(shape_, g);
  task.reads = {states};
  if (split) task.reads.push_back(params_at(op.chunk, false));
  // Before there is a norm, nobody looks at one.
  if (!op.speculative) task.reads.push_back(whole(clip_));
  const std::size_t first_grads = task.reads.size();
  if (p.gradients == Tier::kHost) {
    task.reads.push_back(summed_grads(g, chunk.begin, chunk.elems));
  } else {
    const int streams = nvme(p.gradients) ? gradient_streams(shape_, g) : 1;
    for (int s = 0; s < streams; ++s) {
      task.reads.push_back(ring(ring_grads_[static_cast<std::size_t>(s)], chunk));
    }
  }
  task.writes = {in_ring ? states : states_at(op.chunk, op.speculative)};
  const Tier params = parameter_tier(shape_, g);
  if (params == Tier::kHost && !op.speculative) {
    task.writes.push_back(part(params_[at], chunk.begin, chunk.elems));
  } else if (split) {
    task.writes.push_back(part(second_params_[at], chunk.begin, chunk.elems));
  } else if (params != Tier::kHost && shape_.dtype != DType::kFloat32 &&
             (!op.speculative || writes_params_early(shape_, g))) {
    task.writes.push_back(ring(ring_weights_, chunk));
  }
  const std::int64_t step = op.speculative ? version_ : version_ - 1;
  task.work = [this, &chunk, step, split, first_grads, clips = !op.speculative,
               n = task.writes.size()](const std::vector<Cells>& seen) {
    if (split) {
      expect(seen[1] == params_of(chunk.group, chunk.begin, seen[1].size(), step),
             "joins remainders with another step's parameters");
    }
    if (clips) {
      expect_all(seen[first_grads - 1], thing(Thing::kClip, 0, 0, step),
                 "clips by another step's norm");
    }
    std::vector<Cells> grads{seen.begin() + static_cast<std::ptrdiff_t>(first_grads), seen.end()};
    expect_all(sum_of(grads), total(chunk.group, step), "updates with another step's gradients");
    std::vector<Cells> results = {updated(chunk, seen[0], step)};
    if (n > 1) results.push_back(params_of(chunk.group, chunk.begin, results[0].size(), step + 1));
    return results;
  };
  return task;
}

Cells TierPlay::updated(const Chunk& chunk, Cells states, std::int64_t step) {
  constexpr Cell kNames = (Cell{1} << 56) - 1;  // group, place, version
  const Cells known = params_of(chunk.group, chunk.begin, states.size(), step);
  for (std::size_t e = 0; e < states.size(); ++e) {
    expect((states[e] & kNames) == (known[e] & kNames), "updates other states");
    ++states[e];
  }
  return states;
}

Task TierPlay::move_chunk(const Op& op) {
  const Chunk& chunk = program_->chunks[static_cast<std::size_t>(op.chunk)];
  const int g = chunk.group;
  if (op.kind == OpKind::kReadStates) {
    // Of an image: from the place that was current, and into the other one.
    const bool kept =
        kind_ == PlayKind::kRemake || kept_chunks_[static_cast<std::size_t>(op.chunk)];
    const bool former = program_->image && !op.ahead && !op.speculative && !kept;
    return copy(states_at(op.chunk, former), ring(ring_states_, chunk));
  }
  if (op.kind == OpKind::kCopyGrads) {
    return copy(summed_grads(g, chunk.begin, chunk.elems), ring(ring_grads_[0], chunk));
  }
  Task task;
  if (op.kind == OpKind::kWriteStates) {
    task = copy(ring(ring_states_, chunk), states_at(op.chunk, op.speculative));
    if (!params_are_master(shape_, g)) return task;
    task.writes.push_back(params_at(op.chunk, op.speculative));
    task.work = [this, g, &chunk](const std::vector<Cells>& seen) {
      return std::vector<Cells>{seen[0],
                                params_of(g, chunk.begin, seen[0].size(),
                                          static_cast<std::int64_t>(version_in(seen[0].at(0))))};
    };
    return task;
  }
  return op.kind == OpKind::kReadGrads ? read_streams(chunk) : sum_squares(op);
}

Task TierPlay::read_streams(const Chunk& chunk) {
  Task task;
  for (int s = 0; s < gradient_streams(shape_, chunk.group); ++s) {
    const auto stream = static_cast<std::size_t>(s);
    task.writes.push_back(ring(ring_grads_[stream], chunk));
    task.reads.push_back(
        part(shards_[static_cast<std::size_t>(chunk.group)][stream], chunk.begin, chunk.elems));
  }
  task.work = [](const std::vector<Cells>& seen) { return seen; };
  return task;
}

Task TierPlay::sum_squares(const Op& op) {
  Task task;
  const Chunk& chunk = program_->chunks[static_cast<std::size_t>(op.chunk)];
  const int g = chunk.group;
  const bool in_ring = nvme(shape_.placement.gradients);
  if (!in_ring) task.reads = {summed_grads(g, chunk.begin, chunk.elems)};
  for (int s = 0; in_ring && s < gradient_streams(shape_, g); ++s) {
    task.reads.push_back(ring(ring_grads_[static_cast<std::size_t>(s)], chunk));
  }
  task.writes = {
      {sums_, static_cast<std::size_t>(op.chunk), static_cast<std::size_t>(op.chunk) + 1}};
  task.work = [this, g](const std::vector<Cells>& seen) {
    expect_all(sum_of(seen), total(g, version_), "sums other gradients");
    return std::vector<Cells>{{thing(Thing::kSum, 0, 0, version_)}};
  };
  return task;
}

Task TierPlay::params_of_chunk(const Op& op) {
  const Chunk& chunk = program_->chunks[static_cast<std::size_t>(op.chunk)];
  const int g = chunk.group;
  const bool fp32 = shape_.dtype == DType::kFloat32;
  const Region master = nvme(optimizer_tier(shape_, chunk.group)) ? ring(ring_states_, chunk)
                                                                  : states_at(op.chunk, false);
  const std::int64_t made = version_ + (op.speculative ? 1 : 0);
  Task task = copy(fp32 ? master : ring(ring_weights_, chunk), params_at(op.chunk, op.speculative));
  task.work = [this, g, &chunk, fp32, made](const std::vector<Cells>& seen) {
    const auto version = static_cast<std::int64_t>(version_in(seen[0].at(0)));
    Cells params = params_of(g, chunk.begin, seen[0].size(), version);
    if (!fp32) expect(seen[0] == params, "takes away other weights");
    expect(version == made, "takes away weights of another version");
    return std::vector<Cells>{std::move(params)};
  };
  return task;
}

// --- inputs ---

Task TierPlay::move_input(const Op& op) {
  const auto unit = static_cast<std::size_t>(op.unit);
  const std::size_t extent =
      input_extents(shape_) > 1 ? static_cast<std::size_t>(op.micro_batch) : 0;
  const Region file = whole(inputs_[unit][extent]);
  const auto slot = [&](BufferId b) { return buffer(b); };
  Region from = file;
  Region to = file;
  if (op.kind == OpKind::kSaveInput || op.kind == OpKind::kFetchInput) {
    const bool saves = op.kind == OpKind::kSaveInput;
    from = slot(saves ? op.device_slot : op.host_slot);
    to = slot(saves ? op.host_slot : op.device_slot);
    if (!saves) {  // what was kept comes back in the same buffer
      input_[{op.unit, op.micro_batch}] = op.device_slot;
      kept_.erase({op.unit, op.micro_batch});
    }
  } else if (op.kind == OpKind::kWriteInput) {
    from = slot(op.host_slot);
  } else {
    to = slot(op.host_slot);
  }
  Task task = copy(from, to);
  const auto kept = kept_.find({op.unit, op.micro_batch});
  if (op.kind == OpKind::kSaveInput && kept != kept_.end()) {
    task.reads.push_back(buffer(kept->second));
  }
  task.work = [this, &op, n = values_in(to)](const std::vector<Cells>& seen) {
    const Cell input = thing(Thing::kInput, op.unit, op.micro_batch, version_);
    expect_all(seen[0], input, "moves another input");
    for (std::size_t r = 1; r < seen.size(); ++r) {
      expect_all(seen[r], thing(Thing::kKept, op.unit, op.micro_batch, version_),
                 "moves what another unit kept");
    }
    return std::vector<Cells>{Cells(n, input)};
  };
  return task;
}

}  // namespace sluice
