// The layout of parameters in flat groups, and the cut into data-parallel shards. Pure.
//
// A group is gathered, reduced and updated as a whole: the parameters of a transformer block, or a
// tensor that two units share (a tied embedding). Tensors lie one after another, each start aligned
// to kAlignElems. Padding at the end makes dp equal shards. Shard r is elements
// [r * shard_elems, (r + 1) * shard_elems), regardless of tensor borders (ZeRO, Rajbhandari et al.
// 2020, section 5). The layout depends on the tensors and dp only, not on stage, bucket size or
// dtype.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice {

// 32 elements of 16 bits are 64 bytes, so every tensor starts on a cache line in every dtype. A
// GEMM then has the same alignment and summation order wherever a group lies.
inline constexpr std::int64_t kAlignElems = 32;

struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  bool decay = true;  // takes part in weight decay
};

struct TensorPlacement {
  TensorSpec spec;
  std::int64_t elems = 0;
  std::int64_t offset_elems = 0;  // in the group
};

struct ElemRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct GroupPlan {
  std::string name;
  std::vector<TensorPlacement> tensors;
  std::int64_t elems = 0;  // with padding: dp * shard_elems
  std::int64_t shard_elems = 0;
  std::int64_t param_elems = 0;    // without padding
  std::vector<ElemRange> padding;  // elements that no tensor covers
};

// A run of a shard with one weight-decay setting; range is relative to the shard's begin.
struct ShardSegment {
  ElemRange range;
  bool decay = true;
};

[[nodiscard]] GroupPlan plan_group(std::string name, std::span<const TensorSpec> tensors, int dp);

// Covers shard `dp_rank` without gaps, in order. `dp_rank` -1: the whole group.
[[nodiscard]] std::vector<ShardSegment> shard_segments(const GroupPlan& group, int dp_rank);

// A part of the reduction of one group: elements [begin, begin + elems) of every rank's shard.
struct BucketPiece {
  int group = 0;
  std::int64_t begin = 0;
  std::int64_t elems = 0;
  int stream = 0;  // index of the group's gradient shard
};

// Cuts shards [0, shard_elems) of the groups, in the given order, into runs of at most
// `bucket_bytes` of fp32 gradient over all dp ranks. Small groups share a bucket. A large group is
// cut at multiples of kAlignElems. The caller flushes a last, short bucket or adds more groups.
class BucketCutter {
 public:
  BucketCutter(std::int64_t bucket_bytes, int dp);

  // Adds a whole group; returns the buckets that are full now.
  [[nodiscard]] std::vector<std::vector<BucketPiece>> add(int group, std::int64_t shard_elems,
                                                          int stream = 0);
  // The last, short bucket; may be empty.
  [[nodiscard]] std::vector<BucketPiece> flush();
  // True if a part of the group is in a bucket that is not full yet.
  [[nodiscard]] bool holds(int group) const;

 private:
  std::int64_t bucket_shard_elems_;  // a bucket's elements of one shard
  std::int64_t filled_ = 0;
  std::vector<BucketPiece> open_;
};

}  // namespace sluice
