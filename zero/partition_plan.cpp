#include "zero/partition_plan.hpp"

#include <algorithm>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace sluice {

GroupPlan plan_group(std::string name, std::span<const TensorSpec> tensors, int dp) {
  check(dp > 0, "dp must be positive");
  GroupPlan plan;
  plan.name = std::move(name);
  std::int64_t end = 0;
  for (const TensorSpec& spec : tensors) {
    TensorPlacement placement{spec, 1, round_up(end, kAlignElems)};
    for (const std::int64_t dim : spec.shape) placement.elems *= dim;
    if (placement.offset_elems > end) plan.padding.push_back({end, placement.offset_elems});
    end = placement.offset_elems + placement.elems;
    plan.param_elems += placement.elems;
    plan.tensors.push_back(std::move(placement));
  }
  plan.shard_elems = round_up((end + dp - 1) / dp, kAlignElems);
  plan.elems = plan.shard_elems * dp;
  if (plan.elems > end) plan.padding.push_back({end, plan.elems});
  return plan;
}

std::vector<ShardSegment> shard_segments(const GroupPlan& group, int dp_rank) {
  const std::int64_t begin = dp_rank < 0 ? 0 : dp_rank * group.shard_elems;
  const std::int64_t end = dp_rank < 0 ? group.elems : begin + group.shard_elems;
  std::vector<ShardSegment> segments;
  // Padding is zero and stays zero with any setting, so padding joins the segment before it.
  const auto append = [&](std::int64_t from, std::int64_t to, bool decay) {
    from = std::max(from, begin);
    to = std::min(to, end);
    if (from >= to) return;
    if (!segments.empty() && segments.back().decay == decay) {
      segments.back().range.end = to - begin;
    } else {
      segments.push_back({{from - begin, to - begin}, decay});
    }
  };
  for (std::size_t i = 0; i < group.tensors.size(); ++i) {
    const std::int64_t next =
        i + 1 < group.tensors.size() ? group.tensors[i + 1].offset_elems : group.elems;
    append(group.tensors[i].offset_elems, next, group.tensors[i].spec.decay);
  }
  return segments;
}

BucketCutter::BucketCutter(std::int64_t bucket_bytes, int dp)
    : bucket_shard_elems_(
          std::max(kAlignElems, bucket_bytes / 4 / dp / kAlignElems * kAlignElems)) {}

std::vector<std::vector<BucketPiece>> BucketCutter::add(int group, std::int64_t shard_elems,
                                                        int stream) {
  std::vector<std::vector<BucketPiece>> full;
  std::int64_t begin = 0;
  while (begin < shard_elems) {
    const std::int64_t elems = std::min(shard_elems - begin, bucket_shard_elems_ - filled_);
    open_.push_back({group, begin, elems, stream});
    begin += elems;
    filled_ += elems;
    if (filled_ == bucket_shard_elems_) full.push_back(flush());
  }
  return full;
}

std::vector<BucketPiece> BucketCutter::flush() {
  filled_ = 0;
  return std::exchange(open_, {});
}

bool BucketCutter::holds(int group) const {
  return std::any_of(open_.begin(), open_.end(),
                     [group](const BucketPiece& piece) { return piece.group == group; });
}

}  // namespace sluice
