#include "runtime/program/write/grad_flow.hpp"

#include <algorithm>
#include <utility>

#include "base/index.hpp"

namespace sluice {
namespace {

bool meet(const BucketPiece& a, const BucketPiece& b) {
  return a.stream == b.stream && a.begin < b.begin + b.elems && b.begin < a.begin + a.elems;
}

// Of these buffers, that of the group.
auto find_of(const Program& program, const std::vector<BufferId>& buffers, int group) {
  return std::find_if(buffers.begin(), buffers.end(),
                      [&](BufferId b) { return nth(program.buffers, b).group == group; });
}

}  // namespace

GradFlow::GradFlow(ProgramBuilder& builder, const StepShape& shape)
    : builder_(builder),
      shape_(shape),
      cutter_(shape.bucket_bytes, shape.dp),
      rounds_(shape.groups.size()),
      stored_(shape.groups.size()) {
  for (int g = 0; g < static_cast<int>(shape.groups.size()); ++g) {
    streams_.push_back(gradient_streams(shape, g));
  }
}

int GradFlow::writes_of_round(int g) const {
  if (nth(streams_, g) > 1) return 1;
  const auto writers = static_cast<int>(
      std::count_if(shape_.units.begin(), shape_.units.end(), [g](const UnitShape& u) {
        return std::find(u.groups.begin(), u.groups.end(), g) != u.groups.end();
      }));
  return shape_.reduce_every == ReduceEvery::kStep ? writers * shape_.micro_batches : writers;
}

// A bucket holds a group only once, so the rest of a group's round is sent before the group's next
// round starts. The loss head frees all slots: a whole forward has passed since their reductions.
void GradFlow::open(Op& op) {
  op.writes = nth(shape_.units, op.unit).groups;
  std::erase_if(op.writes, [this](int g) { return is_frozen(shape_, g); });
  std::vector<int> starting;
  for (const int g : op.writes) {
    if (nth(rounds_, g).writes == 0) starting.push_back(g);
  }
  if (std::any_of(starting.begin(), starting.end(), [&](int g) { return cutter_.holds(g); })) {
    newest_reductions_ = builder_.next_op();
    flush(open_micro_batch_);
  }
  if (!transient()) {
    for (const int g : starting) retire_group(g, op);
  }
  const bool rested = op.kind == OpKind::kLossHead && !shape_.layer_major;
  while (transient() && !reducing_.empty() &&
         (rested || reducing_.front().reductions.back() < newest_reductions_)) {
    retire(reducing_.front(), op);
    reducing_.pop_front();
  }
  for (const int g : starting) start_round(g, op);
}

void GradFlow::start_round(int g, Op& op) {
  Round& round = nth(rounds_, g);
  const bool first = round.group < 0;
  round = Round{};
  round.group = g;
  round.stream = gradient_stream(shape_, op.unit, g);
  op.opens.push_back(g);
  const GroupShape& group = nth(shape_.groups, g);
  if (first && group.passing_gradient_bytes > 0) {
    passing_.push_back(builder_.buffer({.tag = Tag::kGradients,
                                        .bytes = group.passing_gradient_bytes,
                                        .small = small_bytes(shape_, group.passing_gradient_bytes),
                                        .group = g}));
    if (!group.rounds_gradients) op.live.push_back(passing_.back());
  }
  if (!transient() && !group.rounds_gradients) return;
  round.slot = builder_.buffer(Tag::kGradientBuckets, group.elems * 4, true, g);
  op.live.push_back(round.slot);
}

BufferId GradFlow::take_passing(int g) {
  const auto found = find_of(builder_.program(), passing_, g);
  if (found == passing_.end()) return -1;
  const BufferId taken = *found;
  passing_.erase(found);
  return taken;
}

void GradFlow::retire(const Round& round, Op& op) {
  op.waits.insert(op.waits.end(), round.reductions.begin(), round.reductions.end());
  if (round.slot >= 0) op.dead_before.push_back(round.slot);
  op.dead_before.insert(op.dead_before.end(), round.staging.begin(), round.staging.end());
}

void GradFlow::retire_group(int g, Op& op) {
  for (auto it = reducing_.begin(); it != reducing_.end();) {
    if (it->group == g) {
      retire(*it, op);
      it = reducing_.erase(it);
    } else {
      ++it;
    }
  }
}

void GradFlow::close(OpId id, bool flushes) {
  const Op& op = builder_.op(id);
  const int m = op.micro_batch;
  const OpId next = builder_.next_op();
  open_micro_batch_ = m;
  const std::vector<int> groups = op.writes;  // emitting moves `op`
  for (const int g : groups) {
    Round& round = nth(rounds_, g);
    if (++round.writes < writes_of_round(g)) continue;
    round.writes = 0;
    if (reduces_in_place(shape_)) {
      const GroupShape& group = nth(shape_.groups, g);
      OpId made = id;
      if (group.rounds_gradients) {
        Op rounding{.kind = OpKind::kRoundGrads, .group = g, .dead_after = {round.slot}};
        const auto to = find_of(builder_.program(), passing_, g);
        if (to != passing_.end()) rounding.live = {*to};
        made = builder_.emit(std::move(rounding));
      }
      if (!group.add_replicas) summed_.push_back({g, {made}});
      continue;
    }
    const std::int64_t elems = nth(shape_.groups, g).shard_elems;
    for (const auto& bucket : cutter_.add(g, elems, round.stream)) reduce(bucket, m);
  }
  if (flushes) flush(m);
  if (builder_.next_op() > next) newest_reductions_ = next;
}

void GradFlow::flush(int micro_batch) {
  const std::vector<BucketPiece> rest = cutter_.flush();
  if (!rest.empty()) reduce(rest, micro_batch);
}

void GradFlow::reduce(const std::vector<BucketPiece>& pieces, int micro_batch) {
  Op op{.kind = OpKind::kReduceGrads, .lane = Lane::kComm, .micro_batch = micro_batch};
  op.bucket = builder_.bucket(pieces);
  op.accumulate = shape_.reduce_every == ReduceEvery::kMicroBatch && micro_batch > 0;
  std::int64_t bytes = 0;
  for (const BucketPiece& piece : pieces) bytes += piece.elems * 4;
  op.wire_bytes = (shape_.dp - 1) * bytes / 4 * size_of(sent_dtype(shape_));
  if (held_by_ >= 0) op.waits.push_back(std::exchange(held_by_, -1));
  const bool leaves = shape_.placement.gradients != Tier::kDevice;
  std::vector<BufferId> staging;
  if (leaves) {
    staging.push_back(builder_.buffer(Tag::kGradientStaging, bytes, true));
    op.live = staging;
    op.device_slot = staging.front();
  }
  OpId last = builder_.emit(op);
  if (leaves) last = store(last, staging.front(), staging);
  std::vector<BucketPiece> whole;  // pieces of groups with one stream
  for (const BucketPiece& piece : pieces) {
    if (nth(streams_, piece.group) == 1) whole.push_back(piece);
  }
  if (shape_.stage == 0 && micro_batch + 1 == shape_.micro_batches && !whole.empty()) {
    Op gather{.kind = OpKind::kGatherGrads, .lane = Lane::kComm, .micro_batch = micro_batch};
    for (const BucketPiece& piece : whole) gather.wire_bytes += (shape_.dp - 1) * piece.elems * 4;
    gather.bucket = whole.size() == pieces.size() ? op.bucket : builder_.bucket(std::move(whole));
    last = builder_.emit(std::move(gather));
  }
  for (const BucketPiece& piece : pieces) {
    Round& round = nth(rounds_, piece.group);
    round.reductions.push_back(last);
    round.reduced += piece.elems;
    if (&piece == &pieces.back()) {
      round.staging.insert(round.staging.end(), staging.begin(), staging.end());
    }
    const GroupShape& group = nth(shape_.groups, piece.group);
    if (round.reduced < group.shard_elems) continue;
    reducing_.push_back(round);
    const bool last_sum = micro_batch + 1 == shape_.micro_batches && !group.add_replicas &&
                          nth(streams_, piece.group) == 1;
    if (last_sum) summed_.push_back({piece.group, round.reductions});
  }
}

// Stores a reduced bucket in shards on the host or on NVMe, rounded to their dtype. Returns the
// last operation.
OpId GradFlow::store(OpId reduction, BufferId reduced, std::vector<BufferId>& staging) {
  const Op& reduce = builder_.op(reduction);
  std::int64_t bytes = 0;
  for (const BucketPiece& piece : builder_.bucket(reduce.bucket)) {
    bytes += gradient_bytes(shape_, piece.group, piece.elems);
  }
  const bool disk = shape_.placement.gradients == Tier::kNvme;
  Op store{.kind = OpKind::kStoreGrads, .lane = Lane::kToHost, .micro_batch = reduce.micro_batch};
  store.bucket = reduce.bucket;
  store.accumulate = reduce.accumulate;
  store.moved_bytes = bytes;
  store.device_slot = reduced;
  store.waits = {reduction};
  std::vector<OpId> earlier = stored_under(store.bucket);
  if (disk) {
    staging.push_back(builder_.buffer(
        {.tag = Tag::kGradientStaging, .bytes = bytes, .in_arena = true, .tier = Tier::kHost}));
    store.host_slot = staging.back();
    Op read = store;
    read.device_slot = -1;
    read.kind = OpKind::kReadBucket;
    read.lane = Lane::kDisk;
    read.live = {staging.back()};
    read.waits = std::move(earlier);
    if (store.accumulate) {
      store.waits.push_back(builder_.emit(std::move(read)));
    } else {
      store.live = {staging.back()};
    }
  } else {
    store.waits.insert(store.waits.end(), earlier.begin(), earlier.end());
  }
  Op write = store;
  OpId last = builder_.emit(std::move(store));
  if (disk) {
    write.kind = OpKind::kWriteBucket;
    write.device_slot = -1;
    write.lane = Lane::kDisk;
    write.live.clear();
    write.waits = {last};
    last = builder_.emit(std::move(write));
  }
  note_stored(builder_.op(last).bucket, last);
  return last;
}

// The newest operations that stored elements of the bucket's pieces.
std::vector<OpId> GradFlow::stored_under(int bucket) const {
  std::vector<OpId> ops;
  for (const BucketPiece& piece : builder_.bucket(bucket)) {
    for (const Stored& there : nth(stored_, piece.group)) {
      if (meet(there.piece, piece)) ops.push_back(there.op);
    }
  }
  return ops;
}

void GradFlow::note_stored(int bucket, OpId op) {
  for (const BucketPiece& piece : builder_.bucket(bucket)) {
    std::vector<Stored>& group = nth(stored_, piece.group);
    std::erase_if(group, [&](const Stored& there) { return meet(there.piece, piece); });
    group.push_back({op, piece});
  }
}

std::vector<OpId> GradFlow::stored(int g) const {
  std::vector<OpId> ops;
  for (const Stored& there : nth(stored_, g)) ops.push_back(there.op);
  return ops;
}

void GradFlow::add_streams(int g) {
  Op add{.kind = OpKind::kAddGrads, .group = g};
  retire_group(g, add);
  builder_.emit(std::move(add));
}

OpId GradFlow::gather_sum(int g) {
  const std::int64_t elems = nth(shape_.groups, g).shard_elems;
  Op gather{.kind = OpKind::kGatherGrads, .lane = Lane::kComm};
  gather.bucket = builder_.bucket({{g, 0, elems}});
  gather.wire_bytes = (shape_.dp - 1) * elems * 4;
  return builder_.emit(std::move(gather));
}

void GradFlow::add_replicas(int g, OpId gathered, Op& norm) {
  Op add{.kind = OpKind::kAddReplicas, .group = g};
  retire_group(g, add);
  if (gathered >= 0) add.waits.push_back(gathered);
  const bool ends = nth(shape_.groups, g).at_ends;
  const int others = ends ? 1 : shape_.tensor - 1;
  add.exchanges =
      builder_.exchanges({{.kind = ExchangeKind::kAllGather,
                           .ranks = ends ? ExchangeRanks::kEnds : ExchangeRanks::kTensor,
                           .bytes = others * owned_elems(shape_, g) * 4}});
  norm.waits.push_back(builder_.emit(std::move(add)));
}

void GradFlow::finish(Op& norm) {
  std::vector<OpId> gathered(rounds_.size(), -1);
  for (int g = 0; g < static_cast<int>(rounds_.size()); ++g) {
    // On NVMe the operation that reads the streams adds them.
    if (nth(streams_, g) == 1 || shape_.placement.gradients == Tier::kNvme) continue;
    add_streams(g);
    if (shape_.stage > 0) continue;
    nth(gathered, g) = gather_sum(g);
    norm.waits.push_back(nth(gathered, g));
  }
  for (int g = 0; g < static_cast<int>(rounds_.size()); ++g) {
    if (!nth(shape_.groups, g).add_replicas) continue;
    add_replicas(g, nth(gathered, g), norm);
  }
  for (const Round& round : reducing_) retire(round, norm);
  reducing_.clear();
}

}  // namespace sluice
