// What operations on gradients, up to their norm, read and write, and what they must find.
#include "tests/runtime/program/tier_play.hpp"

namespace sluice {

Region TierPlay::full_grads(int g, std::int64_t begin_elem, std::int64_t elems) const {
  if (!keeps_full_gradients(shape_)) return buffer_part(gradient_slot_.at(g), begin_elem, elems, 4);
  return part(full_[static_cast<std::size_t>(g)], begin_elem, elems);
}

// Where the sums of a bucket's pieces are kept.
std::vector<Region> TierPlay::shard_pieces(const Op& op) const {
  std::vector<Region> regions;
  for (const BucketPiece& piece : program_->buckets[static_cast<std::size_t>(op.bucket)]) {
    regions.push_back(has_gradient_shard(shape_)
                          ? part(shards_[static_cast<std::size_t>(piece.group)]
                                        [static_cast<std::size_t>(piece.stream)],
                                 piece.begin, piece.elems)
                          : full_grads(piece.group,
                                       dp_rank_ * group(piece.group).shard_elems + piece.begin,
                                       piece.elems));
  }
  return regions;
}

// A bucket's pieces, one after another, in a slot: on the host as the shards have them.
Region TierPlay::staged(BufferId b, const Op& op) const {
  std::int64_t elems = 0;
  for (const BucketPiece& piece : program_->buckets[static_cast<std::size_t>(op.bucket)]) {
    elems += piece.elems;
  }
  const bool on_host = program_->buffers[static_cast<std::size_t>(b)].tier == Tier::kHost;
  return buffer_part(b, 0, elems, on_host ? size_of(shape_.placement.gradients_dtype) : 4);
}

Task TierPlay::reduce(const Op& op) {
  Task task;
  const auto& pieces = program_->buckets[static_cast<std::size_t>(op.bucket)];
  for (const BucketPiece& piece : pieces) {
    for (int r = 0; r < shape_.dp; ++r) {
      task.reads.push_back(
          full_grads(piece.group, r * group(piece.group).shard_elems + piece.begin, piece.elems));
    }
  }
  const bool leaves = shape_.placement.gradients != Tier::kDevice;
  task.writes = leaves ? std::vector<Region>{staged(op.device_slot, op)} : shard_pieces(op);
  const bool adds = op.accumulate && !leaves;
  if (adds) task.reads.insert(task.reads.end(), task.writes.begin(), task.writes.end());
  const auto ranks = static_cast<std::size_t>(shape_.dp);
  task.work = [this, ranks, leaves, adds, n = pieces.size()](const std::vector<Cells>& seen) {
    std::vector<Cells> results;
    for (std::size_t p = 0; p < n; ++p) {
      Cells sum = seen[p * ranks];
      for (std::size_t r = 0; r < ranks; ++r) {
        expect(seen[p * ranks + r] == sum, "reduces gradients that are not whole");
      }
      for (std::size_t e = 0; adds && e < sum.size(); ++e) sum[e] += seen[n * ranks + p][e];
      if (leaves && p > 0) {
        results[0].insert(results[0].end(), sum.begin(), sum.end());
      } else {
        results.push_back(std::move(sum));
      }
    }
    return results;
  };
  return task;
}

Task TierPlay::store(const Op& op) {
  Task task;
  const std::vector<Region> shards = shard_pieces(op);
  if (op.kind == OpKind::kStoreGrads) {
    task.reads = {staged(op.device_slot, op)};
    task.writes =
        nvme(shape_.placement.gradients) ? std::vector<Region>{staged(op.host_slot, op)} : shards;
    if (op.accumulate) {
      task.reads.insert(task.reads.end(), task.writes.begin(), task.writes.end());
    }
  } else if (op.kind == OpKind::kReadBucket) {
    task.reads = shards;
    task.writes = {staged(op.host_slot, op)};
  } else {
    task.reads = {staged(op.host_slot, op)};
    task.writes = shards;
  }
  // Lays what was read end to end, adds what was there, and cuts it as it is written.
  const bool adds = op.kind == OpKind::kStoreGrads && op.accumulate;
  task.work = [adds, writes = task.writes](const std::vector<Cells>& seen) {
    Cells all;
    const std::size_t sources = adds ? 1 : seen.size();
    for (std::size_t r = 0; r < sources; ++r) all.insert(all.end(), seen[r].begin(), seen[r].end());
    std::vector<Cells> results;
    std::size_t at = 0;
    for (std::size_t w = 0; w < writes.size(); ++w) {
      Cells values;
      for (std::size_t e = 0; e < values_in(writes[w]); ++e) {
        values.push_back(all[at++] + (adds ? seen[1 + w][e] : 0));
      }
      results.push_back(std::move(values));
    }
    return results;
  };
  return task;
}

Task TierPlay::add_streams(const Op& op) {
  Task task;
  const auto& streams = shards_[static_cast<std::size_t>(op.group)];
  for (const int s : streams) task.reads.push_back(whole(s));
  task.writes = {whole(streams.at(0))};
  task.work = [](const std::vector<Cells>& seen) { return std::vector<Cells>{sum_of(seen)}; };
  return task;
}

// The other rank's sum is the same as this one's.
Task TierPlay::add_replicas(const Op& op) {
  Task task;
  task.reads = {summed_grads(op.group, 0, owned_elems(shape_, op.group))};
  task.writes = task.reads;
  task.work = [](const std::vector<Cells>& seen) {
    std::vector<Cells> sums = seen;
    for (Cell& cell : sums[0]) cell *= 2;
    return sums;
  };
  return task;
}

Task TierPlay::gather_grads(const Op& op) {
  Task task;
  task.reads = shard_pieces(op);
  for (const BucketPiece& piece : program_->buckets[static_cast<std::size_t>(op.bucket)]) {
    for (int r = 0; r < shape_.dp; ++r) {
      task.writes.push_back(
          full_grads(piece.group, r * group(piece.group).shard_elems + piece.begin, piece.elems));
    }
  }
  const auto ranks = static_cast<std::size_t>(shape_.dp);
  task.work = [ranks](const std::vector<Cells>& seen) {
    std::vector<Cells> results;
    for (const Cells& piece : seen) results.insert(results.end(), ranks, piece);
    return results;
  };
  return task;
}

// What is updated with, where a single array has it.
Region TierPlay::summed_grads(int g, std::int64_t begin_elem, std::int64_t elems) const {
  const auto at = static_cast<std::size_t>(g);
  if (shape_.stage == 0) return part(full_[at], begin_elem, elems);
  if (has_gradient_shard(shape_)) return part(shards_[at][0], begin_elem, elems);
  return part(full_[at], dp_rank_ * group(g).shard_elems + begin_elem, elems);
}

Task TierPlay::norm() {
  Task task;
  std::vector<bool> by_chunks(shape_.groups.size(), false);
  for (const Op& op : program_->ops) {
    if (op.kind == OpKind::kSumSquares) by_chunks[static_cast<std::size_t>(op.group)] = true;
  }
  std::vector<Cell> wanted;
  for (std::size_t c = 0; c < program_->chunks.size(); ++c) {
    if (!by_chunks[static_cast<std::size_t>(program_->chunks[c].group)]) continue;
    task.reads.push_back({sums_, c, c + 1});
    wanted.push_back(thing(Thing::kSum, 0, 0, version_));
  }
  for (int g = 0; g < static_cast<int>(shape_.groups.size()); ++g) {
    if (by_chunks[static_cast<std::size_t>(g)] || nvme(shape_.placement.gradients)) continue;
    task.reads.push_back(summed_grads(g, 0, owned_elems(shape_, g)));
    wanted.push_back(total(g, version_));
  }
  task.writes = {whole(clip_)};
  task.work = [this, wanted](const std::vector<Cells>& seen) {
    for (std::size_t i = 0; i < seen.size(); ++i) {
      expect_all(seen[i], wanted[i], "does not see the sum of all gradients");
    }
    return std::vector<Cells>{{thing(Thing::kClip, 0, 0, version_)}};
  };
  return task;
}

}  // namespace sluice
